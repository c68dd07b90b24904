"""Gives the LINEAR form of an instanced kernel the extent of one, for the interpreters."""

from __future__ import annotations

from dataclasses import replace

from tinytensor.ops.attrs import ExtentAttrs
from tinytensor.ops.attrs_blocks import PlaceAttrs
from tinytensor.ops.instances import MOST_ELEMENTS, param_at, params_at
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, substitute_all


def linear_at_extent(linear: Linear, extent: int) -> Linear:
    """Return the LINEAR form of one instance for an interpreter, which runs the longest there is.

    On a GPU it has the blocks of that one.
    """
    places = params_at(linear.statements, extent)
    grid = linear.grid
    if grid is not None:
        blocks = -(-extent * grid.blocks[0] // MOST_ELEMENTS)
        grid = replace(grid, blocks=(blocks, 1, 1))
    for node in linear.statements:
        if node.op is Op.EXTENT:
            places[node] = UOp(Op.EXTENT, node.dtype, (), ExtentAttrs(extent))
        elif node.op is Op.PLACE and node.attrs.kind == "block_x" and grid is not None:
            attrs = PlaceAttrs("block_x", grid.blocks[0])
            places[node] = UOp(Op.PLACE, node.dtype, (), attrs)
    params = tuple([param_at(each, extent) for each in linear.params])
    statements = substitute_all(linear.statements, places)
    return replace(linear, statements=statements, params=params, grid=grid)
