"""Turns elements into ones of mean 0 and variance 1, with a learned scale and shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import ShapeError
from tinytensor.nn import init
from tinytensor.nn.functional import batch_norm, group_norm, layer_norm, rms_norm
from tinytensor.nn.module import Module
from tinytensor.nn.parameter import Parameter, empty_parameter
from tinytensor.tensor.companions import accompany
from tinytensor.tensor.tensor import Tensor


def as_shape(size: int | Sequence[int]) -> tuple[int, ...]:
    """Return a shape, of one axis for a number."""
    return (size,) if isinstance(size, int) else tuple(size)


class Normalization(Module):
    """What normalizations share: a scale and a shift, either of which may be missing."""

    weight: Parameter | None
    bias: Parameter | None

    def _add_affine(
        self,
        shape: Sequence[int],
        weight: bool,
        bias: bool,
        device: str | None,
        dtype: DType | None,
    ) -> None:
        for name, is_there in (("weight", weight), ("bias", bias)):
            made = empty_parameter(*shape, device=device, dtype=dtype) if is_there else None
            self.register_parameter(name, made)

    def reset_parameters(self) -> None:
        """Let the scale be 1 and the shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(Normalization):
    """Standardize over the last axes, then scale and shift each element.

    Shapes: (.., *normalized_shape), also the result's; weight and bias normalized_shape.
    DTypes: one float dtype; halves compute in float32 and round once.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-05,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        has_bias = elementwise_affine and bias
        self._add_affine(self.normalized_shape, elementwise_affine, has_bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """Return the standardized elements, scaled and shifted."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the options."""
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(Normalization):
    """Divide by the root of the mean square over the last axes, then scale each element.

    Shapes: (.., *normalized_shape), also the result's; weight normalized_shape.
    DTypes: one float dtype; halves compute in float32 and round once.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._add_affine(self.normalized_shape, elementwise_affine, False, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """Return the scaled elements."""
        return rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the options."""
        affine = f"elementwise_affine={self.elementwise_affine}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class GroupNorm(Normalization):
    """Standardize over groups of channels, then scale and shift each channel.

    Shapes: (n, num_channels, ..), also the result's; weight and bias (num_channels,).
    DTypes: one float dtype; halves compute in float32 and round once.
    Raises: ValueError unless the channels form groups.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-05,
        affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            sentence = f"GroupNorm: channels do not form groups: {num_channels} in {num_groups}"
            raise ValueError(f"{sentence}; they must be a multiple of num_groups.")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        self._add_affine((num_channels,), affine, affine and bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """Return the standardized elements, scaled and shifted."""
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the options."""
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, {affine}"


class BatchNorm(Normalization):
    """What normalizations over a batch share; `axes` is how many axes an input may have.

    In training the statistics are those of the batch, and the running ones move towards them; in
    use they are the running ones. With momentum None these are the mean of all batches.
    """

    axes: ClassVar[tuple[int, ...]]
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._add_affine((num_features,), affine, affine and bias, device, dtype)
        is_tracking = track_running_stats
        zeros = Tensor.zeros(num_features, device=device, dtype=dtype)
        count = Tensor.zeros((), device=device, dtype=dtypes.int64)
        self.register_buffer("running_mean", zeros if is_tracking else None)
        self.register_buffer("running_var", zeros.ones_like() if is_tracking else None)
        self.register_buffer("num_batches_tracked", count if is_tracking else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget all batches."""
        starts = {"running_mean": 0, "running_var": 1, "num_batches_tracked": 0}
        for name, number in starts.items():
            statistic = self._buffers[name]
            if statistic is not None:
                init.constant_(statistic, number)

    def reset_parameters(self) -> None:
        """Forget all batches; let the scale be 1 and the shift 0."""
        self.reset_running_stats()
        super().reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """Return the standardized elements, scaled and shifted."""
        if input.ndim not in self.axes:
            wanted = " or ".join(map(str, self.axes))
            sentence = f"{type(self).__name__}: axes do not fit: shape {input.shape}"
            raise ShapeError(f"{sentence}; ndim must be {wanted}.")
        mean, var = self.running_mean, self.running_var
        options = (self.weight, self.bias, self.training or mean is None)
        if not self.training:
            return batch_norm(input, mean, var, *options, eps=self.eps)
        return batch_norm(input, mean, var, *options, self._count_batch(), self.eps)

    def _count_batch(self) -> float | Tensor:
        """Count a batch; return by what share it moves the running statistics."""
        if self.num_batches_tracked is not None:
            accompany(self.num_batches_tracked.add_(1))
            if self.momentum is None:
                return 1 / self.num_batches_tracked.float()
        return self.momentum or 0.0

    def extra_repr(self) -> str:
        """Return the options."""
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        tracking = f"track_running_stats={self.track_running_stats}"
        options = f"eps={self.eps}, momentum={self.momentum}, {affine}, {tracking}"
        return f"{self.num_features}, {options}"


class BatchNorm1d(BatchNorm):
    """Standardize each channel over a batch, then scale and shift it.

    Shapes: (n, num_features[, length]), also the result's; weight and bias (num_features,).
    DTypes: one float dtype; halves compute in float32 and round once.
    """

    axes = (2, 3)


class BatchNorm2d(BatchNorm):
    """Standardize each channel over a batch of images, then scale and shift it.

    Shapes: (n, num_features, h, w), also the result's; weight and bias (num_features,).
    DTypes: one float dtype; halves compute in float32 and round once.
    """

    axes = (4,)
