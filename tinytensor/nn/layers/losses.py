"""Turns losses into modules that hold their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tinytensor.nn import functional
from tinytensor.nn.module import Module
from tinytensor.tensor.tensor import Tensor


class Loss(Module):
    """What losses share: whether all numbers come back ('none'), their mean or their sum."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction


class DistanceLoss(Loss):
    """A loss of the distance between input and target.

    Shapes: input and target alike -> (), or like them with reduction 'none'.
    DTypes: a float dtype, also the result's; halves compute in float32 and round once.
    """

    function: ClassVar[Callable[..., Tensor]]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return type(self).function(input, target, self.reduction)


class MSELoss(DistanceLoss):
    """Return the squared difference; see DistanceLoss."""

    function = staticmethod(functional.mse_loss)


class L1Loss(DistanceLoss):
    """Return the absolute difference; see DistanceLoss."""

    function = staticmethod(functional.l1_loss)


class BCEWithLogitsLoss(Loss):
    """Return the binary cross entropy of sigmoid(input), without overflow.

    Shapes: input and target alike -> (), or like them with reduction 'none'; weight and
    pos_weight expand to them.
    DTypes: a float dtype, also the result's; halves compute in float32 and round once.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        options = (self.weight, self.reduction, self.pos_weight)
        return functional.binary_cross_entropy_with_logits(input, target, *options)


class NLLLoss(Loss):
    """Return the negative of the logarithm that each class index names.

    Shapes: input (classes,) or (n, classes, ..), target without the classes -> (), or like the
    target with reduction 'none'; weight (classes,).
    DTypes: input a float dtype, also the result's; target an integer one.
    """

    def __init__(
        self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(NLLLoss):
    """Return the loss of class scores for class indices or class probabilities.

    Shapes: as in NLLLoss; probabilities have the input's shape.
    DTypes: input a float dtype, also the result's; target an integer or a float one.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        options = (self.weight, self.ignore_index, self.reduction, self.label_smoothing)
        return functional.cross_entropy(input, target, *options)
