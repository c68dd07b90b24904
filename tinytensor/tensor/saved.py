"""Tells what a backward will find in memory: the values that the forward keeps for it."""

from __future__ import annotations

import math

from tinytensor.grad import gradients, origins_below
from tinytensor.ops.op import Op
from tinytensor.realize import kept_between
from tinytensor.records import dataclass
from tinytensor.schedule.describe import describe
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.nodes import full_like


@dataclass(frozen=True, slots=True)
class SavedValue:
    """A value that the backward reads from memory. `is_leaf` where it lies there in any case."""

    name: str
    nbytes: int
    is_leaf: bool


def saved(*outputs: TensorBase) -> list[SavedValue]:
    """Return what is saved for the backward of some outputs, computed with it in one schedule.

    Everything else that the backward needs of the forward it computes again.
    Units: `nbytes` is in bytes.

    >>> from tinytensor import Tensor, autograd
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> [(each.name, each.nbytes, each.is_leaf) for each in autograd.saved(x.exp().sum())]
    [('buffer f32[2]', 8, True)]
    """
    roots = [each.uop for each in outputs]
    upstreams = [full_like(each, 1) for each in roots]
    found = gradients(roots, upstreams, origins_below(roots))
    slopes = [each for each in found if each is not None]
    kept = kept_between(roots, slopes, outputs[0].device)
    return [
        SavedValue(
            describe(each), math.prod(each.shape) * each.dtype.itemsize, each.op is Op.BUFFER
        )
        for each in kept
    ]
