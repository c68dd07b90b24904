"""Turns graphs into simpler ones with the same values: the rules for values and for indices."""

from __future__ import annotations

from collections.abc import Sequence

from tinytensor.ops.rewrite import rewrite
from tinytensor.ops.simplify_index import ALL_RULES
from tinytensor.ops.uop import UOp


def simplify(roots: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the roots with every rule for values and indices applied, in one run.

    >>> from tinytensor.dtype import dtypes
    >>> from tinytensor.ops.uop import const
    >>> three = const(dtypes.float32, 3.0)
    >>> simplify((three * 2.0,))[0].value
    6.0
    """
    return rewrite(roots, ALL_RULES)
