"""Turns structured Python into the LINEAR form of a thread block: places, shared memory, waits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tinytensor.codegen.builder import Builder, Pieces
from tinytensor.codegen.pieces_cuda import pieces_of
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops import attrs as a
from tinytensor.ops import attrs_blocks as b
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.fragments import WARP_THREADS, accumulator_registers, mma_shape
from tinytensor.ops.infer_blocks import TILE_ALIGNMENT_BYTES
from tinytensor.ops.kernel import Param
from tinytensor.ops.linear import Grid, Linear
from tinytensor.ops.op import Op
from tinytensor.ops.text import word_of
from tinytensor.ops.uop import UOp, cast, const

SHARED_ALIGNMENT_BYTES = 16
MBARRIER_BYTES = 8
BLOCK_AXES = ("block_x", "block_y", "block_z")


class BlockBuilder(Builder):
    """Builds what every thread of a grid runs; shared memory is given out in order of asking.

    An int where an index is asked becomes a constant. Effects take their order from the calls. A
    plan may set `resident`, the blocks that a multiprocessor must have registers for, `across`, an
    index expression for how many blocks run along x, and `least_shared`, bytes that a block has.
    """

    has_maximum = True
    aligns_vectors = True

    def __init__(
        self,
        name: str,
        params: Sequence[Param],
        index_dtype: DType,
        blocks: tuple[int, int, int],
        threads: int,
    ) -> None:
        super().__init__(name, params, index_dtype)
        self.blocks = blocks
        self.threads = threads
        self.resident = 0
        self.across: UOp | None = None
        self.least_shared = 0
        self._shared_bytes = 0
        self._role_warps = 0
        self._running_threads = threads

    def pieces_of(self, load: UOp, range_: UOp, lanes: int) -> Pieces | None:
        """Return the aligned vectors in which lanes of an INDEXED load lie."""
        return pieces_of(load, range_, lanes)

    def finish(self) -> Linear:
        """Return the finished form with its grid."""
        shared_bytes = max(self._shared_bytes, self.least_shared)
        grid = Grid(self.blocks, self.threads, shared_bytes, self.resident, self.across)
        return dataclasses.replace(super().finish(), grid=grid)

    # Who runs.
    def place(self, kind: str) -> UOp:
        """Return `thread`, `warp`, `block_x`, `block_y` or `block_z` of the running thread."""
        extents = dict(zip(BLOCK_AXES, self.blocks, strict=True))
        extents["warp"] = self.threads // WARP_THREADS
        extent = extents.get(kind, self.threads)
        return UOp(Op.PLACE, dtypes.int32, (), b.PlaceAttrs(kind, extent))

    @property
    def thread(self) -> UOp:
        """The thread's number within its block, in the index dtype."""
        return cast(self.place("thread"), self.index_dtype)

    @property
    def warp(self) -> UOp:
        """The warp's number within the block, in the index dtype."""
        return cast(self.place("warp"), self.index_dtype)

    def block(self, axis: int) -> UOp:
        """Return the block's number along an axis of the grid (0: x), in the index dtype."""
        return cast(self.place(BLOCK_AXES[axis]), self.index_dtype)

    @contextmanager
    def role(self, name: str, warps: int, registers: int = 0) -> Iterator[UOp]:
        """Open what the next `warps` warps alone run; gives the thread's number among theirs."""
        first = self._role_warps
        if (first + warps) * WARP_THREADS > self.threads:
            sentence = f"role {name} needs warps {first} to {first + warps - 1}"
            raise InternalError(f"builder: {self.name}: {sentence}, of {self.threads} threads.")
        attrs = b.RoleAttrs(self._next_order(), name, first, warps, registers)
        opened = self._effect(UOp(Op.ROLE, dtypes.void, (), attrs))
        self._role_warps = first + warps
        self._running_threads = warps * WARP_THREADS
        yield self.thread - first * WARP_THREADS
        self._running_threads = self.threads
        self._ordered(Op.ENDROLE, dtypes.void, opened)

    # Shared memory.
    def shared(self, dtype: DType, elements: int) -> UOp:
        """Return a fresh region of the block's shared memory, 16-byte aligned."""
        offset = self._allocate(elements * dtype.itemsize, SHARED_ALIGNMENT_BYTES)
        return UOp(Op.SHARED, dtype, (), b.SharedAttrs(offset, elements))

    def tile(
        self, dtype: DType, rows: int, columns: int, stages: int = 1, swizzle: bool = True
    ) -> UOp:
        """Return a ring of tiles, 1024-byte aligned; ops/tile.py knows its addresses."""
        size = rows * columns * stages * dtype.itemsize
        offset = self._allocate(size, TILE_ALIGNMENT_BYTES)
        return UOp(Op.TILE, dtype, (), b.TileAttrs(offset, rows, columns, stages, swizzle))

    def mbarriers(self, count: int, arrivals: int) -> UOp:
        """Return `count` transaction barriers, each of `arrivals` arrivals a phase."""
        offset = self._allocate(count * MBARRIER_BYTES, MBARRIER_BYTES)
        return UOp(Op.MBARRIERS, dtypes.uint64, (), b.MbarrierAttrs(offset, count, arrivals))

    # Threads together.
    def barrier(self, number: int = 0, threads: int = 0, group: UOp | None = None) -> None:
        """Wait for the whole block, or at a named barrier (of a group) for that many threads."""
        attrs = b.BarrierAttrs(self._next_order(), number, threads or self.threads)
        self._append_effect(Op.BARRIER, () if group is None else (group,), attrs)

    def grid_wait(self) -> None:
        """Wait until the launches before have ended; global memory is touched only after it."""
        self._append_effect(Op.GRID_WAIT, ())

    def exchange(self, x: UOp, distance: int) -> UOp:
        """Return x of the lane whose number differs by XOR with `distance`."""
        attrs = b.ExchangeAttrs(self._next_order(), distance)
        return self._effect(UOp(Op.EXCHANGE, x.dtype, (x,), attrs))

    # Copies by threads.
    def copy_async(
        self,
        target: UOp,
        index: UOp | int,
        source: UOp,
        start: UOp | int,
        elements: int,
        valid: UOp | int | None = None,
    ) -> None:
        """Start a copy of adjacent elements to shared memory; those from `valid` on become 0."""
        inside = elements if valid is None else valid
        operands = (target, index, source, start, inside)
        self._append_effect(Op.COPY_ASYNC, operands, b.CopyAttrs(self._next_order(), elements))

    def commit(self) -> None:
        """Close a group of the copies started by this thread."""
        self._append_effect(Op.COPY_COMMIT, ())

    def wait_copies(self, pending: int = 0) -> None:
        """Wait until at most `pending` of this thread's newest groups are unfinished."""
        self._append_effect(Op.COPY_WAIT, (), b.WaitAttrs(self._next_order(), pending))

    # Tiles.
    def tile_copy(
        self,
        tile: UOp,
        stage: UOp | int,
        source: UOp,
        start: UOp | int,
        rows: UOp | int,
        columns: UOp | int,
        row_stride: int,
        access_elements: int = 1,
    ) -> None:
        """Start to fill tile[stage] by all running threads; beyond rows and columns it is 0."""
        threads = self._running_threads
        attrs = b.TileCopyAttrs(self._next_order(), threads, row_stride, access_elements)
        self._append_effect(Op.TILE_COPY, (tile, stage, source, start, rows, columns), attrs)

    def accumulator(
        self, instruction: str, block_m: int, block_n: int, warps_m: int, warps_n: int
    ) -> UOp:
        """Return the zeroed register of a block's product, laid out as ops/fragments.py tells."""
        attrs = b.TileMmaAttrs(0, instruction, warps_m, warps_n, True, True)
        registers = accumulator_registers(attrs, block_m, block_n)
        return self.register(mma_shape(instruction).accumulate.vector(registers), 0)

    def tile_mma(
        self,
        accumulator: UOp,
        x: UOp,
        x_stage: UOp | int,
        y: UOp,
        y_stage: UOp | int,
        attrs: b.TileMmaAttrs,
    ) -> None:
        """Start accumulator += x[x_stage] @ y[y_stage]; the order in attrs is replaced."""
        ordered = dataclasses.replace(attrs, order=self._next_order())
        self._append_effect(Op.TILE_MMA, (accumulator, x, x_stage, y, y_stage), ordered)

    def mma_wait(self, accumulator: UOp, pending: int = 0) -> None:
        """Wait until at most `pending` of the newest products are in flight."""
        self._append_effect(Op.MMA_WAIT, (accumulator,), b.WaitAttrs(self._next_order(), pending))

    # Hopper: transaction barriers.
    def mbarrier_init(self, barriers: UOp) -> None:
        """Start all of them in phase 0; run by one thread, before a barrier of the block."""
        self._append_effect(Op.MBARRIER_INIT, (barriers,))

    def mbarrier_expect(self, barriers: UOp, number: UOp | int, nbytes: int) -> None:
        """Arrive, and let the phase await that many bytes more."""
        self._append_effect(Op.MBARRIER_EXPECT, (barriers, number, nbytes))

    def mbarrier_arrive(self, barriers: UOp, number: UOp | int) -> None:
        """Arrive, once for each running thread."""
        self._append_effect(Op.MBARRIER_ARRIVE, (barriers, number))

    def mbarrier_wait(self, barriers: UOp, number: UOp | int, parity: UOp | int) -> None:
        """Wait until the phase of that parity is over (of a fresh barrier, parity 1 is)."""
        self._append_effect(Op.MBARRIER_WAIT, (barriers, number, parity))

    # Hopper: bulk copies, each started by one thread.
    def tensor_map(
        self,
        buffer: UOp,
        shape: Sequence[UOp],
        strides: Sequence[int],
        tile: UOp,
        offset: int = 0,
        rounds: bool = False,
        box: tuple[int, ...] = (),
        steps: tuple[int, ...] = (),
    ) -> UOp:
        """Return global memory, seen as an array (innermost axis first), in boxes like the tile.

        A box has the tile's columns and rows, or those of further axes of the array as well. The
        shape's index expressions may be known only at launch.
        """
        most = tuple([int(bounds_of(each)[1]) for each in shape])
        is_open = any(each.op is not Op.CONST for each in shape)
        extents = tuple(map(word_of, shape)) if is_open else ()
        box = box or (tile.attrs.columns, tile.attrs.rows, *[1] * (len(shape) - 2))
        swizzle = box[0] * tile.dtype.itemsize if tile.attrs.swizzle else 0
        described = (most, tuple(strides), box, swizzle, offset, rounds, extents, steps)
        attrs = b.TensorMapAttrs(*described)
        return UOp(Op.TENSOR_MAP, buffer.dtype, (buffer,), attrs)

    def bulk_load(
        self,
        tile: UOp,
        stage: UOp | int,
        tensor_map: UOp,
        places: Sequence[UOp | int],
        barriers: UOp,
        number: UOp | int,
    ) -> None:
        """Start to fill tile[stage] with the box at places; its bytes count at a barrier."""
        operands = (tile, stage, tensor_map, barriers, number, *places)
        self._append_effect(Op.BULK_LOAD, operands)

    def bulk_store(
        self, tensor_map: UOp, places: Sequence[UOp | int], tile: UOp, stage: UOp | int
    ) -> None:
        """Start to write tile[stage] to the box at places, clipped to the map."""
        self._append_effect(Op.BULK_STORE, (tensor_map, tile, stage, *places))

    def bulk_commit(self) -> None:
        """Close a group of this thread's bulk stores."""
        self._append_effect(Op.BULK_COMMIT, ())

    def bulk_wait(self, pending: int = 0) -> None:
        """Wait until at most `pending` of the newest groups still read shared memory."""
        self._append_effect(Op.BULK_WAIT, (), b.WaitAttrs(self._next_order(), pending))

    def proxy_fence(self) -> None:
        """Let the copy engine and WGMMA see what this thread wrote to shared memory."""
        self._append_effect(Op.PROXY_FENCE, ())

    # Hopper: products of a warpgroup.
    def wgmma_fence(self, *accumulators: UOp) -> None:
        """Order the uses of accumulators before the products that follow."""
        self._append_effect(Op.WGMMA_FENCE, accumulators)

    def wgmma(
        self,
        accumulator: UOp,
        x: UOp,
        x_index: UOp | int,
        y: UOp,
        y_index: UOp | int,
        attrs: b.WgmmaAttrs,
        adds: UOp | None = None,
    ) -> None:
        """Start one instruction on blocks of x and y; the order in attrs is replaced.

        It adds to the accumulator where `adds`, else it begins a sum.
        An index is that of the block's first element, before the swizzle: stage * rows * columns +
        row * columns + column, with 16 dividing the bytes of column; 8 divides row but along k.
        """
        ordered = dataclasses.replace(attrs, order=self._next_order())
        always = const(dtypes.bool, True) if adds is None else adds
        self._append_effect(Op.WGMMA, (accumulator, x, x_index, y, y_index, always), ordered)

    def wgmma_commit(self) -> None:
        """Close a group of products."""
        self._append_effect(Op.WGMMA_COMMIT, ())

    def wgmma_wait(self, *accumulators: UOp, pending: int = 0) -> None:
        """Wait until at most `pending` of the newest groups of products are in flight."""
        self._append_effect(Op.WGMMA_WAIT, accumulators, b.WaitAttrs(self._next_order(), pending))

    def _append_effect(
        self, op: Op, operands: Sequence[UOp | int], attrs: a.Attrs | None = None
    ) -> None:
        """Append an effect without a value; ints become constants of the index dtype."""
        nodes = tuple([self._as_index(each) for each in operands])
        self._effect(UOp(op, dtypes.void, nodes, attrs or a.EffectAttrs(self._next_order())))

    def _allocate(self, size: int, alignment: int) -> int:
        offset = -(-self._shared_bytes // alignment) * alignment
        self._shared_bytes = offset + size
        return offset
