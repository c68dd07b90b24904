"""Turns gradients that are too large into smaller ones of the same direction."""

from __future__ import annotations

from collections.abc import Iterable

from tinytensor.errors import ValueOutOfRange
from tinytensor.tensor.grad_mode import no_grad
from tinytensor.tensor.tensor import Tensor

LEAST_NORM = 1e-6


def gradients_of(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """Return the parameters that have a gradient."""
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [each for each in listed if each.grad is not None]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients by one factor, so that their joint norm is at most max_norm.

    Returns the norm before; nothing is computed until it or a gradient is read.
    Raises: ValueOutOfRange for a norm of NaN or infinity, if error_if_nonfinite: this reads it.
    """
    owners = gradients_of(parameters)
    if not owners:
        return Tensor(0.0)
    with no_grad():
        norms = [owner.grad.norm(norm_type) for owner in owners if owner.grad is not None]
        total = Tensor.stack(norms).norm(norm_type)
        if error_if_nonfinite and not total.isfinite():
            sentence = f"clip_grad_norm_: the norm of order {norm_type} is {total.item()}"
            raise ValueOutOfRange(f"{sentence}; it must be finite.")
        factor = (max_norm / (total + LEAST_NORM)).clamp(max=1.0)
        for owner in owners:
            if owner.grad is not None:
                owner.grad.mul_(factor)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Hold each element of the gradients between -clip_value and clip_value."""
    with no_grad():
        for owner in gradients_of(parameters):
            if owner.grad is not None:
                owner.grad.clamp_(-clip_value, clip_value)
