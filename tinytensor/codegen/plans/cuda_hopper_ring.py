"""Turns a role's way around a ring of stages into two registers: a stage and a parity."""

from __future__ import annotations

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, cast, compare, where


class RingPlace:
    """Where a role stands: a stage, and the parity of the phase that a consumer awaits there."""

    def __init__(self, b: BlockBuilder, stages: int, ahead: UOp | None = None) -> None:
        self._b = b
        self._stages = stages
        self._stage = b.register(b.index_dtype, 0)
        self._parity = b.register(b.index_dtype, 0)
        if ahead is not None:
            self.skip(ahead)

    @property
    def stage(self) -> UOp:
        """The stage."""
        return self._b.read(self._stage)

    @property
    def parity(self) -> UOp:
        """The parity."""
        return self._b.read(self._parity)

    def advance(self) -> None:
        """Go to the next stage."""
        b, following = self._b, self._b.value(self.stage + 1)
        wraps = b.value(compare(Op.EQ, following, b.index(self._stages)))
        parity = self.parity
        b.write(self._parity, binary(Op.XOR, parity, cast(wraps, b.index_dtype)))
        b.write(self._stage, where(wraps, b.index(0), following))

    def skip(self, count: UOp | int) -> None:
        """Go on by many stages."""
        b, following = self._b, self._b.value(self.stage + count)
        rounds = b.value(binary(Op.TRUNCDIV, following, self._stages))
        parity = self.parity
        b.write(self._parity, binary(Op.TRUNCMOD, parity + rounds, 2))
        b.write(self._stage, b.value(following - rounds * self._stages))
