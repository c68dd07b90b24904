"""Turns windows of a signal or an image into sums of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tinytensor.dtype import DType
from tinytensor.nn.convolution import Each, border, for_axes
from tinytensor.nn.functional import conv1d, conv2d
from tinytensor.nn.layers.linear import start_evenly
from tinytensor.nn.module import Module
from tinytensor.nn.parameter import Parameter, empty_parameter
from tinytensor.tensor.tensor import Tensor

MODES = ("zeros", "reflect", "replicate", "circular")


class Convolution(Module):
    """What convolutions share; `count` is the number of axes that the window moves along."""

    count: ClassVar[int]
    function: ClassVar[Callable[..., Tensor]]
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each | str = 0,
        dilation: Each = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = self._each("kernel_size", kernel_size, 1)
        self.stride = self._each("stride", stride, 1)
        self.dilation = self._each("dilation", dilation, 1)
        if not isinstance(padding, str):
            padding = self._each("padding", padding, 0)
        self.padding = padding
        self.padding_mode = padding_mode
        self._check_options()
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = empty_parameter(*shape, device=device, dtype=dtype)
        offset = empty_parameter(out_channels, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", offset)
        self.reset_parameters()

    def _each(self, name: str, value: Each, least: int) -> tuple[int, ...]:
        return for_axes(type(self).__name__, name, value, self.count, least)

    def _check_options(self) -> None:
        who, groups = type(self).__name__, self.groups
        channels = (self.in_channels, self.out_channels)
        if groups < 1 or any(count % groups for count in channels):
            sentence = f"{who}: channels do not form groups: {channels} in {groups}"
            raise ValueError(f"{sentence}; both must be multiples of groups.")
        if self.padding_mode not in MODES:
            sentence = f"{who}: no such padding_mode: {self.padding_mode!r}"
            raise ValueError(f"{sentence}; it must be one of {', '.join(MODES)}.")
        self._border()

    def _border(self) -> list[int]:
        who = type(self).__name__
        return border(who, self.padding, self.kernel_size, self.stride, self.dilation)

    def reset_parameters(self) -> None:
        """Draw first values."""
        start_evenly(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the sums of products of windows and weights."""
        padding: Each | str = self.padding
        if self.padding_mode != "zeros":
            input, padding = input.pad(self._border(), self.padding_mode), 0
        options = (self.stride, padding, self.dilation, self.groups)
        return type(self).function(input, self.weight, self.bias, *options)

    def extra_repr(self) -> str:
        """Return the channels, and the options that are not the usual ones."""
        ones, nothing = (1,) * self.count, (0,) * self.count
        shown = [f"{self.in_channels}, {self.out_channels}"]
        shown += [f"kernel_size={self.kernel_size}, stride={self.stride}"]
        shown += [f"padding={self.padding}"] if self.padding != nothing else []
        shown += [f"dilation={self.dilation}"] if self.dilation != ones else []
        shown += [f"groups={self.groups}"] if self.groups != 1 else []
        shown += ["bias=False"] if self.bias is None else []
        shown += [f"padding_mode={self.padding_mode}"] if self.padding_mode != "zeros" else []
        return ", ".join(shown)


class Conv1d(Convolution):
    """Convolve along the last axis.

    Shapes: ([n,] in_channels, length) -> ([n,] out_channels, windows);
    weight (out_channels, in_channels / groups, kernel_size).
    DTypes: one float dtype; halves accumulate in float32.
    Raises: ValueError for options that do not fit.
    """

    count = 1
    function = staticmethod(conv1d)


class Conv2d(Convolution):
    """Convolve along the last two axes.

    Shapes: ([n,] in_channels, h, w) -> ([n,] out_channels, windows, windows);
    weight (out_channels, in_channels / groups, *kernel_size).
    DTypes: one float dtype; halves accumulate in float32.
    Raises: ValueError for options that do not fit.
    """

    count = 2
    function = staticmethod(conv2d)
