"""Turns an elementwise kernel whose loads run across its stores into tiles of shared memory."""

from __future__ import annotations

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.builder import stack
from tinytensor.codegen.plans.lanes import accesses_of
from tinytensor.codegen.plans.merging import FOLDS, merge_ranges
from tinytensor.codegen.plans.nest import Point, emit
from tinytensor.codegen.plans.spread import (
    Spread,
    choose_last,
    empty_launch,
    index_dtype_for,
    most_lanes,
    quotient,
    remainder,
    takes_lanes,
)
from tinytensor.codegen.plans.turning import Turn, find_turn
from tinytensor.codegen.vectorize import Evaluator, aligned_stride
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, walk
from tinytensor.records import dataclass
from tinytensor.target import Target

# A row of a tile is 128 bytes: 8 chunks of 16 bytes, all banks once. 64 x 32 fp32 elements and 256
# threads take 134.7 us for 8192^2, 128 x 64 halves and 512 threads 68.1 us (hand-written
# prototypes, H200, 2026-11-29).
CHUNKS = 8
VECTORS_DOWN = 16
MOST_THREADS = 512
LEAST_EXTENT = 32
MOST_TILE_BYTES = 48 << 10  # of all turned loads together
# A warp reads 8 vectors of each of 4 columns, which lie in 32 different banks.
WARP_VECTORS, WARP_COLUMNS = 8, 4


@dataclass(frozen=True, slots=True)
class CudaTurningFacts:
    """How loads along `turn.range_` meet stores along `last`, `lanes` elements at a time.

    A tile holds 16 vectors of `last`, each of their elements with 8 vectors along the turn's range.
    """

    kernel: Kernel
    outer: Spread
    last: UOp
    turn: Turn
    lanes: int
    threads: int


def facts(kernel: Kernel, target: Target) -> CudaTurningFacts | str | None:
    """Find the two ranges and their vectors, or say why not; None where nothing is to be turned."""
    if any(node.op in FOLDS for node in walk((kernel.sink,))):
        return None
    merged = merge_ranges(kernel)
    candidates = [each for each in merged.ranges if each.extent >= LEAST_EXTENT]
    if len(candidates) < 2:
        return None
    last = choose_last(accesses_of((merged.sink,)), candidates)
    others = [each for each in candidates if each is not last]
    turn = find_turn(merged.sink.operands, last, others)
    if turn is None:
        return None
    lanes = most_lanes(turn.loads, turn.range_, target)
    reason = _obstacle(merged, last, turn, lanes, target)
    if reason:
        return reason
    outer = [each for each in merged.ranges if each not in (last, turn.range_)]
    threads = min(MOST_THREADS, CHUNKS * CHUNKS * lanes)
    return CudaTurningFacts(merged, Spread(tuple(outer)), last, turn, lanes, threads)


def _obstacle(kernel: Kernel, last: UOp, turn: Turn, lanes: int, target: Target) -> str:
    roots = (kernel.sink,)
    if any(each.dtype.itemsize * lanes != target.vector_bytes for each in turn.loads):
        return "turned loads have elements of several sizes; a tile has one."
    if most_lanes(roots, last, target) < lanes:
        return f"something is wider than the turned loads; {lanes} elements of it are no vector."
    if last.extent % lanes or turn.range_.extent % lanes:
        return f"{last.extent} and {turn.range_.extent} are not whole vectors of {lanes} elements."
    if not takes_lanes(roots, last, lanes):
        return "its stores are not aligned vectors."
    if any(aligned_stride(each, turn.range_, lanes) != 1 for each in turn.loads):
        return "its turned loads are not aligned vectors."
    if any(kernel.params[each.operands[0].attrs.number].written for each in turn.loads):
        return "it reads what it writes; blocks would read what others have written."
    tile_bytes = VECTORS_DOWN * CHUNKS * lanes * target.vector_bytes
    if tile_bytes * len(turn.loads) > MOST_TILE_BYTES:
        return f"{len(turn.loads)} tiles of {tile_bytes} bytes; they must fit {MOST_TILE_BYTES}."
    return ""


def describe(facts: CudaTurningFacts, target: Target) -> str:
    """Say how the kernel runs."""
    rows, columns = VECTORS_DOWN * facts.lanes, CHUNKS * facts.lanes
    return f"tiles of {rows} x {columns} elements are turned over in shared memory."


def lower(facts: CudaTurningFacts, target: Target) -> tuple[Linear, ...]:
    """Read a tile in vectors along the turn's range, then compute and store it along the other."""
    if facts.outer.count == 0:
        return (empty_launch(facts.kernel).finish(),)
    return (_Lowering(facts).lower(),)


class _Lowering:
    def __init__(self, facts: CudaTurningFacts) -> None:
        kernel, lanes = facts.kernel, facts.lanes
        self._facts = facts
        self._lanes = lanes
        self._rows, self._columns = VECTORS_DOWN * lanes, CHUNKS * lanes
        across = -(-facts.last.extent // self._rows)
        down = -(-facts.turn.range_.extent // self._columns)
        blocks = facts.outer.count * across * down
        dtype = index_dtype_for(kernel, blocks * facts.threads)
        b = self._b = BlockBuilder(kernel.name, kernel.params, dtype, (blocks, 1, 1), facts.threads)
        tile = b.block(0)
        self._row = b.value(remainder(tile, across) * self._rows)
        rest = quotient(tile, across)
        self._column = b.value(remainder(rest, down) * self._columns)
        self._outer = facts.outer.places(b, quotient(rest, down))
        elements = self._rows * self._columns
        self._tiles = {each: b.shared(each.dtype, elements) for each in facts.turn.loads}

    def lower(self) -> Linear:
        """Fill the tiles, wait, and store them."""
        b, threads = self._b, self._facts.threads
        numbers = [b.thread + at * threads for at in range(self._steps())]
        loaded = [self._load(number) for number in numbers]
        for number, vectors in zip(numbers, loaded, strict=True):
            for load, vector in vectors.items():
                b.store(self._tiles[load], self._chunk_place(number), vector)
        b.barrier()
        for number in numbers:
            self._store(number)
        return b.finish()

    def _steps(self) -> int:
        """How many vectors a thread reads, and how many it stores."""
        steps, rest = divmod(self._rows * CHUNKS, self._facts.threads)
        assert not rest, "threads divide the vectors of a tile, so that each is taken once"
        return steps

    def _place(self, vector: UOp, turned: UOp) -> UOp:
        """Return where an element lies in its row: chunks trade places by the row's vector."""
        chunk = quotient(turned, self._lanes) ^ remainder(vector, CHUNKS)
        return chunk * self._lanes + remainder(turned, self._lanes)

    def _chunk_place(self, number: UOp) -> UOp:
        row, chunk = quotient(number, CHUNKS), remainder(number, CHUNKS)
        vector = quotient(row, self._lanes)
        return row * self._columns + self._place(vector, chunk * self._lanes)

    def _load(self, number: UOp) -> dict[UOp, UOp]:
        """Read one vector of each turned load; beyond the sides the last one is read again."""
        facts, b = self._facts, self._b
        last, turned = facts.last, facts.turn.range_
        row = self._row + quotient(number, CHUNKS)
        column = self._column + remainder(number, CHUNKS) * self._lanes
        places = {
            **self._outer,
            last: binary(Op.MIN, row, last.extent - 1),
            turned: binary(Op.MIN, column, turned.extent - self._lanes),
        }
        evaluator = Evaluator(b, places, turned, self._lanes)
        return {load: b.value(evaluator.value(load)) for load in facts.turn.loads}

    def _store(self, number: UOp) -> None:
        """Compute and store one vector along the other range."""
        facts, b, lanes = self._facts, self._b, self._lanes
        within = remainder(number, WARP_VECTORS * WARP_COLUMNS)
        warp = quotient(number, WARP_VECTORS * WARP_COLUMNS)
        wide = VECTORS_DOWN // WARP_VECTORS
        vector = remainder(warp, wide) * WARP_VECTORS + remainder(within, WARP_VECTORS)
        column = quotient(warp, wide) * WARP_COLUMNS + quotient(within, WARP_VECTORS)
        first = vector * (lanes * self._columns) + self._place(vector, column)
        places = [first + i * self._columns if i else first for i in range(lanes)]
        known: dict[UOp, UOp] = {}
        for load, tile in self._tiles.items():
            known[load] = stack([b.load(tile, place) for place in places])
        row, turned = self._row + vector * lanes, self._column + column
        ranges = {**self._outer, facts.last: row, facts.turn.range_: turned}
        with b.branch((row < facts.last.extent) & (turned < facts.turn.range_.extent)):
            emit(facts.kernel.sink.operands, [Point(b, ranges, known, facts.last, lanes, lanes)])
