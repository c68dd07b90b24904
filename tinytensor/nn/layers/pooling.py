"""Turns windows of an image into one number each."""

from __future__ import annotations

from tinytensor.nn.convolution import Each
from tinytensor.nn.functional import avg_pool2d, max_pool2d
from tinytensor.nn.module import Module
from tinytensor.tensor.tensor import Tensor


class MaxPool2d(Module):
    """Return the greatest element of each window; NaN if there is one.

    Shapes: ([n,] channels, h, w) -> ([n,] channels, windows, windows).
    DTypes: any but bool, also the result's.
    """

    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        dilation: Each = 1,
        *,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """Return the greatest elements."""
        options = (self.stride, self.padding, self.dilation, self.ceil_mode)
        greatest: Tensor = max_pool2d(input, self.kernel_size, *options)
        return greatest

    def extra_repr(self) -> str:
        """Return the options."""
        window = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        return f"{window}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class AvgPool2d(Module):
    """Return the mean of each window, or its sum divided by another number.

    Shapes: ([n,] channels, h, w) -> ([n,] channels, windows, windows).
    DTypes: a float dtype, also the result's; halves compute in float32 and round once.
    """

    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """Return the means."""
        window = (self.kernel_size, self.stride, self.padding, self.ceil_mode)
        return avg_pool2d(input, *window, self.count_include_pad, self.divisor_override)

    def extra_repr(self) -> str:
        """Return the options."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
