"""Turns a contraction into register tiles of multiply-adds over panels packed in cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

from tinytensor.codegen.builder import Builder, fma, splat
from tinytensor.codegen.plans.epilogue import Epilogue, RegisterTile
from tinytensor.codegen.plans.flatten import FlatContraction, flatten, is_symmetric
from tinytensor.codegen.plans.packing import Packing, Tile, direct_tile, is_direct, pack
from tinytensor.codegen.plans.tiling_cpu import (
    Block,
    Columns,
    Tiling,
    all_columns,
    blocks,
    cut,
    fixed_block,
    list_tilings,
    round_up,
    steps,
    whole_block,
)
from tinytensor.codegen.vectorize import extent_value, guard_of, stride_of, widest_itemsize
from tinytensor.dtype import DType, dtypes
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, exact_extent, walk
from tinytensor.records import dataclass
from tinytensor.target import Target


@dataclass(frozen=True, slots=True)
class ContractionFacts:
    """What the plan found: the kernel, and its contraction with one m, n and k range."""

    kernel: Kernel
    flat: FlatContraction

    @property
    def accumulate(self) -> DType:
        """The dtype in which products are summed."""
        return self.flat.total.dtype

    @property
    def widest_itemsize(self) -> int:
        """Bytes of the widest value computed before, in or after the sum."""
        stored = [store.operands[2] for store in self.flat.stores]
        values = [self.flat.a, self.flat.b, self.flat.total, *stored]
        return widest_itemsize(values, self.kernel.index_dtype)


def facts(kernel: Kernel, target: Target) -> ContractionFacts | str | None:
    """Return what the plan needs, or why it does not take it; None for a kernel of another kind."""
    contraction = kernel.contraction
    if contraction is None:
        return None
    dtype = contraction.node.dtype
    if dtype.is_narrow or dtype is dtypes.bool:
        return f"the sum is kept in {dtype.name}; a register tile sums float32, float64, integers."
    folds = [node for node in walk((kernel.sink,)) if node.op in (Op.REDUCE, Op.CONTRACT)]
    if len(folds) > 1:
        return f"the kernel folds {len(folds)} times; a register tile holds one sum."
    for name, ranges in (("m", contraction.m), ("n", contraction.n)):
        if all(each.extent == 1 for each in ranges):
            return f"the product has no {name} range: a matrix-vector product, which has no tile."
    if any(bounds_of(exact_extent(each))[0] < 1 for each in contraction.k if each.is_open):
        return "a range of k may be empty at launch; a tile would be left without its zeros."
    return ContractionFacts(kernel, flatten(kernel))


def candidates(facts: ContractionFacts, target: Target) -> list[Tiling]:
    """List the tilings that fit, the usual one first."""
    flat = facts.flat
    itemsize, symmetric = facts.widest_itemsize, is_symmetric(flat)
    return list_tilings(flat.n.extent, flat.k.extent, itemsize, target, symmetric)


def describe(facts: ContractionFacts, target: Target, tiling: Tiling | None = None) -> str:
    """Say how the kernel is cut into tiles."""
    flat = facts.flat
    tiling = tiling or candidates(facts, target)[0]
    mirrored = _mirrors(flat, tiling)
    panel = f"panels of {tiling.block_k} x {min(tiling.block_n, flat.n.extent)}"
    half = "; symmetric, so one half is computed and mirrored" if mirrored else ""
    return f"register tile {tiling.rows} x {tiling.columns}, {panel}{half}."


def _mirrors(flat: FlatContraction, tiling: Tiling) -> bool:
    """Whether one half of the result is computed; ends known only at launch cut no squares."""
    gains = not flat.n.is_open and tiling.gains_by_mirroring(flat.n.extent)
    return gains and is_symmetric(flat)


def lower(facts: ContractionFacts, target: Target, tiling: Tiling | None = None) -> Linear:
    """Emit the loop nest over cache blocks and register tiles.

    Takes:  a kernel with one contraction; operands and stores are any elementwise expressions.
    Gives:  LINEAR form; what surrounds the sum is emitted from the graph.
    """
    return _Lowering(facts, target, tiling or candidates(facts, target)[0]).emit()


class _Lowering:
    """Emits one kernel. m runs down the register tile's rows, n along its vectors' lanes."""

    def __init__(self, facts: ContractionFacts, target: Target, tiling: Tiling) -> None:
        kernel = facts.kernel
        self.flat = facts.flat
        self.accumulate = facts.accumulate
        self.target = target
        self.tiling = tiling
        self.mirrors = _mirrors(facts.flat, tiling)
        self.builder = Builder(kernel.name, kernel.params, kernel.index_dtype)
        self.epilogue = Epilogue(self.builder, facts.flat, tiling)
        self.packed_b = self._workspace_of_b()
        self.shares_panel = self._shares_panel()
        self.packed_a = None if self.shares_panel else self._workspace_of_a()
        self.store_of_sums = self._find_store_of_sums()
        self.partial_sums = self._workspace_of_partial_sums()

    def emit(self) -> Linear:
        places: dict[UOp, UOp] = {}
        with ExitStack() as loops:
            for each in self.flat.outer:
                loop = self.builder.loop(0, extent_value(self.builder, each))
                places[each] = loops.enter_context(loop)
            for n_block in blocks(self.builder, self.flat.n, self.tiling.block_n):
                for k_block in blocks(self.builder, self.flat.k, self.tiling.block_k):
                    self._multiply_panel(places, n_block, k_block)
        return self.builder.finish()

    def _multiply_panel(self, places: Mapping[UOp, UOp], n_block: Block, k_block: Block) -> None:
        """Multiply every strip of a by one panel of b, a register tile at a time."""
        panel = self._panel_of_b(places, n_block, k_block)
        for row, rows in self._rows(n_block):
            strip = self._strip_of_a(places, fixed_block(row, rows), panel, k_block)
            for columns in self._columns(n_block, row, rows):
                tile = self._register_tile(places, row, rows, columns)
                offset = tile.column - n_block.begin
                is_corner = self.mirrors and not tile.has_image
                factors = self._inside(panel, offset) if is_corner else panel.at(0, offset)
                self._multiply(strip, factors, tile, k_block)
                self._finish(tile, self._resting_place(tile, offset), k_block)

    def _rows(self, n_block: Block) -> Iterator[tuple[UOp, int]]:
        """Walk the tiles' rows: all of m, or down to the diagonal when tiles are mirrored."""
        b, rows = self.builder, self.tiling.rows
        if self.mirrors:
            return steps(b, n_block, rows, begin=b.index(0))
        return steps(b, whole_block(b, self.flat.m), rows)

    def _columns(self, n_block: Block, row: UOp, rows: int) -> Iterator[Columns]:
        """Walk the tiles' columns: all of the block, or from the diagonal on."""
        b, tiling = self.builder, self.tiling
        if not self.mirrors:
            yield from all_columns(b, n_block, tiling)
            return
        lanes = tiling.lanes
        inside = b.value(binary(Op.TRUNCMOD, row, lanes))
        begin = row - inside
        if lanes == 2 * tiling.rows:  # every other strip begins at the middle of a vector
            begin = row + inside
            end = n_block.begin + n_block.count(b, lanes)
            room = binary(Op.MIN, row - n_block.begin, end - row)
            with b.branch(b.index(0) < binary(Op.MIN, inside, room)):
                yield Columns(row, rows, tiling.rows)
        begin = b.value(binary(Op.MAX, n_block.begin, begin))
        for column, count in steps(b, n_block, lanes, begin):
            for columns in cut(column, count, lanes):
                yield replace(columns, has_image=True)

    def _inside(self, panel: Tile, place: UOp) -> Tile:
        """Return the part of a panel from a place on that may lie inside one of its vectors."""
        inside = binary(Op.TRUNCMOD, place, self.tiling.lanes)
        vector = panel.at(0, place - inside)
        return replace(vector, base=vector.base + inside)

    # Operands.
    def _shares_panel(self) -> bool:
        """Whether both factors of a symmetric product are read from one panel, which holds all."""
        tiling = self.tiling
        is_whole = self.flat.n.extent <= tiling.block_n and tiling.lanes % tiling.rows == 0
        return self.mirrors and is_whole and self.packed_b is not None

    def _workspace_of_a(self) -> UOp | None:
        """Scratch for a strip of a as [m][k], unless its elements are read one by one in place."""
        if is_direct(self.flat.a, self.accumulate, (self.flat.m, self.flat.k)):
            return None
        return self.builder.workspace(self.accumulate, self.tiling.rows * self._strip_pitch)

    @property
    def _strip_pitch(self) -> int:
        """Elements from one row of a packed strip to the next: not a multiple of a cache way."""
        return self.tiling.block_k + self.tiling.lanes

    def _strip_of_a(
        self, places: Mapping[UOp, UOp], rows: Block, panel: Tile, k_block: Block
    ) -> Tile:
        b, flat = self.builder, self.flat
        if self.shares_panel:
            place = self._inside(panel, rows.begin)
            return replace(place, row_stride=1, column_stride=panel.row_stride)
        if self.packed_a is None:
            here = {**places, flat.m: rows.begin, flat.k: k_block.begin}
            return direct_tile(b, flat.a, here, flat.m, flat.k)
        tile = Tile(self.packed_a, b.index(0), self._strip_pitch, 1)
        packing = Packing(flat.a, places, flat.k, flat.m, self.accumulate, self.tiling.lanes)
        pack(b, packing, k_block, rows, tile)
        return tile

    def _workspace_of_b(self) -> UOp | None:
        """Scratch for a panel of b as [n / lanes][k][lanes], unless vectors are read in place."""
        flat, tiling = self.flat, self.tiling
        is_rows_of_vectors = (
            is_direct(flat.b, self.accumulate, (flat.n, flat.k))
            and stride_of(flat.b.operands[1], flat.n) == 1
            and flat.n.extent % tiling.lanes == 0
            and not flat.n.is_open
        )
        read_bytes = flat.n.extent * flat.k.extent * self.accumulate.itemsize
        if is_rows_of_vectors and read_bytes <= self.target.l2_bytes:
            return None
        return self.builder.workspace(self.accumulate, tiling.block_n * tiling.block_k)

    def _panel_of_b(self, places: Mapping[UOp, UOp], n_block: Block, k_block: Block) -> Tile:
        b, flat, tiling = self.builder, self.flat, self.tiling
        if self.packed_b is None:
            here = {**places, flat.n: n_block.begin, flat.k: k_block.begin}
            return direct_tile(b, flat.b, here, flat.k, flat.n)
        tile = Tile(self.packed_b, b.index(0), tiling.lanes, tiling.block_k)
        packing = Packing(flat.b, places, flat.n, flat.k, self.accumulate, tiling.lanes)
        pack(b, packing, n_block, k_block, tile)
        return tile

    # The sum.
    def _register_tile(
        self, places: Mapping[UOp, UOp], row: UOp, rows: int, columns: Columns
    ) -> RegisterTile:
        b, lanes = self.builder, columns.lanes
        dtype = self.accumulate.vector(lanes)
        vectors = range(0, columns.count, lanes)
        sums = tuple([tuple([b.register(dtype, 0) for _ in vectors]) for _ in range(rows)])
        begin, count = columns.begin, columns.count
        rest, has_image = columns.rest, columns.has_image
        return RegisterTile(places, row, rows, begin, count, lanes, sums, rest, has_image)

    def _multiply(self, strip: Tile, panel: Tile, tile: RegisterTile, k_block: Block) -> None:
        """Add the products of a block of k to the registers."""
        b, lanes = self.builder, tile.lanes
        b.value(strip.base)
        b.value(panel.base)
        with b.loop(0, k_block.count(b)) as k:
            columns = range(0, tile.columns, lanes)
            factors = [b.load(panel.buffer, panel.index(k, each), lanes) for each in columns]
            for i, row_sums in enumerate(tile.sums):
                element = splat(b.load(strip.buffer, strip.index(i, k)), lanes)
                for register, factor in zip(row_sums, factors, strict=True):
                    b.write(register, self._multiply_add(element, factor, b.read(register)))

    def _multiply_add(self, x: UOp, y: UOp, z: UOp) -> UOp:
        if self.accumulate.is_float and "fma" in self.target.features:
            return fma(x, y, z)
        return x * y + z

    # Between blocks of k.
    @property
    def _splits_k(self) -> bool:
        return self.flat.k.extent > self.tiling.block_k

    def _workspace_of_partial_sums(self) -> UOp | None:
        """Scratch for the sums of a panel between blocks of k, unless the output can hold them."""
        if not self._splits_k or self.store_of_sums is not None:
            return None
        elements = self.flat.m.extent * self._resting_pitch
        return self.builder.workspace(self.accumulate, elements)

    @property
    def _resting_pitch(self) -> int:
        whole_vectors = round_up(self.flat.n.extent, self.tiling.lanes)
        return min(
            self.tiling.block_n, whole_vectors if self.flat.n.is_open else self.flat.n.extent
        )

    def _find_store_of_sums(self) -> UOp | None:
        """Find a store whose target can hold partial sums: same dtype, dense, nowhere else used."""
        if self.flat.n.is_open:  # its last vectors hold sums beyond its end
            return None
        if self.mirrors:  # some results would lie there before all sums are read
            return None
        accesses = [n for n in walk(self.flat.stores) if n.op in (Op.LOAD, Op.STORE)]
        for store in self.flat.stores:
            target = store.operands[0]
            index = store.operands[1]
            fits = target.dtype is self.accumulate and guard_of(store) is None
            is_alone = sum(each.operands[0] is target for each in accesses) == 1
            has_rows = stride_of(index, self.flat.m) not in (None, 0)
            is_adjacent = stride_of(index, self.flat.n) == 1
            if fits and is_alone and has_rows and is_adjacent:
                return store
        return None

    def _resting_place(self, tile: RegisterTile, offset: UOp) -> Tile | None:
        """Where a register tile's sums rest between blocks of k; None when k is one block."""
        b, flat = self.builder, self.flat
        if not self._splits_k:
            return None
        if self.partial_sums is not None:
            panel = Tile(self.partial_sums, b.index(0), self._resting_pitch, 1)
            return panel.at(tile.row, offset)
        assert self.store_of_sums is not None, "partial sums lie in a workspace or an output"
        here = {**tile.places, flat.m: tile.row, flat.n: tile.column}
        return direct_tile(b, self.store_of_sums, here, flat.m, flat.n)

    def _finish(self, tile: RegisterTile, rest: Tile | None, k_block: Block) -> None:
        """Add what earlier blocks of k left; store the result, or leave the sum to later blocks."""
        b = self.builder
        if rest is None or k_block.is_last is None:
            self.epilogue.store(tile)
            return
        b.value(rest.base)
        with b.branch(b.index(0) < k_block.begin):
            self._add_earlier(tile, rest)
        with b.branch(k_block.is_last) as is_last:
            self.epilogue.store(tile)
            b.otherwise(is_last)
            self._leave(tile, rest)

    def _add_earlier(self, tile: RegisterTile, rest: Tile) -> None:
        b = self.builder
        for each in tile.vectors():
            index = rest.index(each.row, each.column)
            earlier = b.load(rest.buffer, index, tile.lanes, each.valid)
            b.write(each.register, b.read(each.register) + earlier)

    def _leave(self, tile: RegisterTile, rest: Tile) -> None:
        b = self.builder
        for each in tile.vectors():
            index = rest.index(each.row, each.column)
            b.store(rest.buffer, index, b.read(each.register), each.valid)
