"""Turns a LINEAR form into one with less arithmetic: the rules for values, on every statement."""

from __future__ import annotations

from tinytensor.codegen.placement import rebuilt
from tinytensor.ops.linear import Linear
from tinytensor.ops.simplify_index import simplify
from tinytensor.target import Target


def simplify_linear(linear: Linear, target: Target) -> Linear:
    """Apply the rules for values and indices.

    Takes:  LINEAR form.
    Gives:  LINEAR form with the same effects in the same order.
    Placed: after `legalize_tiles`, whose addresses add and multiply by 0 and 1; before
            `split_lanes`, which would repeat in every lane what is simplified here once.
    """
    return rebuilt(linear, simplify(linear.statements))
