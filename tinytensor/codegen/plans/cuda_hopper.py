"""Chooses how Hopper's pipeline computes a contraction, and sees to its factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.instructions_cuda import instructions_on
from tinytensor.codegen.plans import cuda_contraction
from tinytensor.codegen.plans.amounts import most_of, usual_extent
from tinytensor.codegen.plans.block_operand import Operand
from tinytensor.codegen.plans.block_product import ProductFacts, read_facts, why_no_product
from tinytensor.codegen.plans.cuda_hopper_boxes import Boxes, see_in_boxes
from tinytensor.codegen.plans.cuda_hopper_halves import in_halves
from tinytensor.codegen.plans.cuda_hopper_pipeline import Pipeline, run_pipeline
from tinytensor.codegen.plans.cuda_hopper_rest import in_pieces
from tinytensor.codegen.plans.cuda_hopper_split import fold_sums, split_sums
from tinytensor.codegen.plans.cuda_hopper_store import tray_bytes, tray_columns
from tinytensor.codegen.plans.cuda_hopper_tiling import (
    CLOCK,
    ROW_BYTES,
    START_CLOCKS,
    Candidate,
    Need,
    Side,
    rank_tilings,
    rank_wholes,
    variants,
)
from tinytensor.codegen.plans.cuda_hopper_windows import products_in_windows
from tinytensor.codegen.plans.flatten import FlatContraction, block_ranges
from tinytensor.codegen.plans.pack_rows import Rows, read_rows, rows_of, turned, write_rows
from tinytensor.codegen.vectorize import stride_of
from tinytensor.dtype import dtypes
from tinytensor.ops.fragments import WORDS, mma_shape, words_of
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.target import Target

FEATURES = frozenset({"wgmma", "bulk"})
LINE_BYTES = 128  # of L2
# Products of floats of 8 bits are summed in some 14 bits, so in parts of so many values of k. Of
# random e4m3 with k = 4096, sums are off by 1.2e-4, 3.4e-4 and 1.3e-3 of their norm if promoted
# after 128, 512 or all; 4096^3 takes 103, 102 and 95 us (H200, 953acf2, 2026-11-30).
PROMOTED_AFTER = 128
# Of ops that are not one or two instructions; those of divisions have a slow path too.
INSTRUCTIONS = {
    **dict.fromkeys((Op.DIV, Op.SQRT, Op.FLOORDIV, Op.MOD), 20),
    **dict.fromkeys((Op.EXP, Op.LOG, Op.TANH, Op.ERF), 15),
    **dict.fromkeys((Op.SIN, Op.COS, Op.PHILOX), 80),
}


def facts(kernel: Kernel, target: Target) -> ProductFacts | str | None:
    """Return what the plan needs, or why it does not take it: the cheapest way, by estimate.

    None where the portable plan of matrix instructions says why, or the target is another one.
    """
    if not target.features >= FEATURES:
        return None
    product = (
        _rounded_facts(kernel, target)
        or _promoted_facts(kernel)
        or cuda_contraction.facts(kernel, target)
    )
    if not isinstance(product, ProductFacts):
        return None
    if product.stored is dtypes.float64:
        return f"no instruction of warpgroups takes factors of {product.stored.name}."
    if product.flat.k.extent == 0:
        return "there is nothing to sum."
    for name, operand in (("a", product.a), ("b", product.b)):
        boxes = _boxes(product.flat, operand)
        if isinstance(boxes, str) and _rows(product, operand) is None:
            return f"factor {name} {boxes}, and the product is too small to rewrite it in rows."
    ways = [product, *_ways_over_patches(product)]
    ranked = [each for each in ways if rank_wholes(need_of(each), target)]
    if not ranked:
        return "the epilogue is too long to be unrolled over a thread's sums."
    return min(ranked, key=lambda each: _clocks(each, target))


def _ways_over_patches(product: ProductFacts) -> list[ProductFacts]:
    """Return the ways that need not write out each window, if a large product reads windows."""
    boxes = [_boxes(product.flat, each) for each in (product.a, product.b)]
    is_ready = all(isinstance(each, Boxes) for each in boxes)
    if is_ready or product.stored.itemsize != 2 or not cuda_contraction.is_large(product):
        return []
    if product.promoted_after:
        return []
    return products_in_windows(product)


def _clocks(facts: ProductFacts, target: Target) -> float:
    """Estimate a way: the product, and before it the launches that write factors in rows."""
    clocks = rank(facts, target)[0].clocks
    for operand in (facts.a, facts.b):
        rows = _rows(facts, operand)
        if rows is not None:
            moved = 2 * rows.elements * facts.stored.itemsize
            clocks += START_CLOCKS + moved / target.rates.copy * CLOCK
    return clocks


def _rounded_facts(kernel: Kernel, target: Target) -> ProductFacts | None:
    """Read a product of float32 whose factors may be rounded to TF32, or be sums of two TF32."""
    if not target.features & {"tf32", "3xtf32"} or kernel.contraction is None:
        return None
    node = kernel.contraction.node
    dtypes_of = {node.dtype, *[each.dtype for each in node.operands[:2]]}
    if dtypes_of != {dtypes.float32} or why_no_product(kernel, kernel.contraction):
        return None
    facts = read_facts(kernel, dtypes.float32)
    return facts if "tf32" in target.features else in_halves(facts)


def _promoted_facts(kernel: Kernel) -> ProductFacts | None:
    """Read a product whose sums leave the instructions: of floats of 8 bits, whose sums must not
    grow long there, or of blocks of k that are scaled.
    """
    if kernel.contraction is None:
        return None
    node = kernel.contraction.node
    a, b = (each.dtype for each in node.operands[:2])
    are_float8 = a in cuda_contraction.FLOAT8 and b in cuda_contraction.FLOAT8
    sums = [mma_shape(name).accumulate for name in instructions_on(a, b)[:1]]
    is_summed = node.dtype in ([dtypes.float32] if are_float8 else sums)
    is_promoted = are_float8 or block_ranges(kernel)
    if not is_summed or not is_promoted or why_no_product(kernel, kernel.contraction, True):
        return None
    facts = read_facts(kernel)
    promotion = facts.flat.promotion
    if promotion is None:
        return replace(facts, promoted_after=PROMOTED_AFTER)
    is_long = are_float8 and promotion.extent > PROMOTED_AFTER
    is_whole = promotion.extent % (ROW_BYTES // a.itemsize) == 0
    if is_long or not is_whole or facts.flat.total.dtype is not dtypes.float32:
        return None
    return replace(facts, promoted_after=promotion.extent)


def describe(facts: ProductFacts, target: Target, chosen: Candidate | None = None) -> str:
    """Say how the kernel is cut into tiles, and what the next best would have cost."""
    ranked = rank(facts, target)
    best = chosen or ranked[0]
    others = [each for each in ranked if each != best]
    tiling = best.tiling
    count = tiling.consumers
    groups = f"{count} {'alternating ' * tiling.alternates}warpgroup{'s' * (count > 1)}"
    block = f"{tiling.block_m} x {tiling.block_n}{' of n x m' if tiling.swaps else ''}"
    next_best = ", ".join([f"{each.name} {each.clocks:.0f}" for each in others[:2]])
    rewritten = sum([_rows(facts, each) is not None for each in (facts.a, facts.b)])
    patches = ", read in windows" if facts.flat.windows else ""
    half = "symmetric, " if best.mirrors else ""
    tf32 = "are rounded to TF32" if facts.flat.half is None else "are sums of two TF32"
    rounded = f" Factors {tf32}." if facts.stored is dtypes.float32 else ""
    before = f" {rewritten} of 2 factors rewritten in rows before." if rewritten else ""
    scaled = ""
    if facts.flat.promotion is not None:
        scaled = f" Sums of {facts.promoted_after} values of k are scaled, and then added up."
    words = words_of(facts.flat.a.dtype, facts.flat.b.dtype)
    return (
        f"wgmma.{words}, {half}{best.tiles} tiles {block} ({best.name}), "
        f"{groups}, {best.stages} stages{patches}: about {best.clocks:.0f} clocks; then "
        f"{next_best}.{before}{rounded}{cuda_contraction.note(facts)}{scaled}"
    )


def rank(facts: ProductFacts, target: Target) -> list[Candidate]:
    """Return the tilings, best first."""
    return rank_tilings(need_of(facts), target)


def candidates(facts: ProductFacts, target: Target) -> list[Candidate]:
    """Return the best tiling, and then all others and their variants by what they cost."""
    best, *others = rank(facts, target)
    need = need_of(facts)
    varied = [other for each in (best, *others) for other in variants(each, need, target)]
    return [best, *sorted(others + varied, key=lambda each: each.clocks)]


def need_of(facts: ProductFacts) -> Need:
    """Say what a tiling must fit."""
    flat = facts.flat
    return Need(
        work=facts.work,
        k=usual_extent(flat.k),
        open_axes=frozenset([each for each in "mnk" if getattr(flat, each).is_open]),
        epilogue_ops=_count_ops([store.operands[2] for store in flat.stores]),
        tray_columns=tray_columns(flat),
        tray_bytes=tray_bytes(flat),
        a=_side(flat, facts.a),
        b=_side(flat, facts.b),
        own_share=_own_share(facts),
        promoted_after=facts.promoted_after,
        promoted_ops=0 if flat.promotion is None else _count_ops([flat.promotion.value]),
        column_scales=0 if flat.promotion is None else _count_columns(flat, flat.promotion.value),
        halves=1 if flat.half is None else 2,
    )


def _own_share(facts: ProductFacts) -> float:
    """Return what part of the factors' elements are read for the first time, not repeated."""
    read = own = 0
    for operand in (facts.a, facts.b):
        elements = facts.work.batch * operand.free.extent * operand.k.extent
        boxes: Boxes | None = facts.flat.windows.get(operand.value)
        read += elements
        if boxes is not None:
            elements = min(elements, math.prod([most_of(each) for each in boxes.shape]))
        own += elements
    return own / read


def _count_ops(values: Sequence[UOp]) -> int:
    """Count the instructions, roughly, between a sum and some values."""
    user = [node.op for node in walk(values) if node.dtype is not dtypes.index]
    return sum([INSTRUCTIONS.get(op, 1) for op in user if op in ELEMENTWISE])


def _count_columns(flat: FlatContraction, value: UOp) -> int:
    """Count the scales of which each column has its own."""
    loads = [node for node in walk((value,)) if node.op is Op.LOAD and flat.m not in walk((node,))]
    return len([each for each in loads if stride_of(each.operands[1], flat.n) not in (0, None)])


def _side(flat: FlatContraction, operand: Operand) -> Side:
    boxes = _boxes(flat, operand)
    in_lines = isinstance(boxes, str) or boxes.begin_at_multiples(LINE_BYTES)
    is_along_k = operand.inner is flat.k
    if isinstance(boxes, str):
        return Side(is_along_k, in_lines)
    return Side(is_along_k, in_lines, boxes.box != (), boxes.reach)


def lower(
    facts: ProductFacts, target: Target, candidate: Candidate | None = None
) -> tuple[Linear, ...]:
    """Emit the product's launch, after those that rewrite factors the engine cannot read.

    Takes:  a kernel with one contraction; operands and stores are any expressions.
    Gives:  LINEAR form of a thread block with roles, bulk copies and products of warpgroups.
    """
    kernel = facts.kernel
    scratch = Builder(kernel.name, kernel.params, kernel.index_dtype)
    factors, launches = [], []
    windows = dict(facts.flat.windows)
    for operand in (facts.a, facts.b):
        rows = _rows(facts, operand)
        if rows is not None:
            region = scratch.workspace(operand.value.dtype, rows.elements)
            launches.append(write_rows(rows, region, kernel))
            if operand.value in windows:
                seen = windows[operand.value]
                windows[operand.value] = replace(seen, buffer=region, rows=None)
            else:
                operand = read_rows(rows, region)
        factors.append(operand)
    flat = replace(facts.flat, windows=windows)
    chosen = candidate or rank(facts, target)[0]
    ready = replace(facts, a=factors[0], b=factors[1], flat=flat)
    for piece, each in in_pieces(ready, chosen):
        if each.parts == 1:
            launches.append(_multiply(piece, each, target))
            continue
        split = split_sums(piece.flat, each.parts, scratch)
        part = replace(piece, flat=split.flat)
        launches += [_multiply(part, each, target, split.part), fold_sums(split, kernel)]
    scratch_bytes = scratch.finish().workspace_bytes
    return tuple([replace(each, workspace_bytes=scratch_bytes) for each in launches])


def _multiply(
    facts: ProductFacts, chosen: Candidate, target: Target, part: UOp | None = None
) -> Linear:
    flat, a, b = facts.flat, facts.a, facts.b
    if chosen.tiling.swaps:
        flat = replace(flat, a=flat.b, b=flat.a, m=flat.n, n=flat.m)
        a, b = b, a
    boxes = _boxes(flat, a), _boxes(flat, b)
    x, y = [each for each in boxes if isinstance(each, Boxes)]  # the others were rewritten
    whole = Pipeline(facts.kernel, flat, (x, y), chosen, target.multiprocessors)
    return run_pipeline(replace(whole, promoted_after=facts.promoted_after, part=part))


def _boxes(flat: FlatContraction, operand: Operand) -> Boxes | str:
    dtype = operand.value.dtype
    if dtype.bits != 16 and operand.inner is not flat.k:
        return f"has no rows along k, which products of {WORDS[dtype].upper()} take"
    seen: Boxes | None = flat.windows.get(operand.value)
    return seen or see_in_boxes(operand.value, operand.inner, operand.outer, flat.around)


def _rows(facts: ProductFacts, operand: Operand) -> Rows | None:
    """Return the rows that a factor is first rewritten as; None if it is taken as it lies."""
    boxes = _boxes(facts.flat, operand)
    if isinstance(boxes, Boxes):
        return boxes.rows
    if not cuda_contraction.is_large(facts) and facts.flat.promotion is None:
        return None
    if facts.stored.bits != 16:
        operand = turned(operand)
    rows = rows_of(operand, facts.flat.around)
    return None if rows.elements > cuda_contraction.MOST_PACKED_ELEMENTS else rows
