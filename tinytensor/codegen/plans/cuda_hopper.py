"""Chooses how Hopper's pipeline computes a contraction of halves, and sees to its factors."""

from __future__ import annotations

from dataclasses import replace

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.plans import cuda_contraction
from tinytensor.codegen.plans.block_operand import Operand
from tinytensor.codegen.plans.block_product import ProductFacts
from tinytensor.codegen.plans.cuda_hopper_boxes import Boxes, see_in_boxes
from tinytensor.codegen.plans.cuda_hopper_pipeline import Pipeline, run_pipeline
from tinytensor.codegen.plans.cuda_hopper_store import tray_bytes, tray_columns
from tinytensor.codegen.plans.cuda_hopper_tiling import Candidate, Need, Side, rank_tilings
from tinytensor.codegen.plans.flatten import FlatContraction
from tinytensor.codegen.plans.pack_rows import Rows, read_rows, rows_of, write_rows
from tinytensor.dtype import dtypes
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.target import Target

FEATURES = frozenset({"wgmma", "bulk"})
WORDS = {dtypes.float16: "f16", dtypes.bfloat16: "bf16"}
LINE_BYTES = 128  # of L2


def facts(kernel: Kernel, target: Target) -> ProductFacts | str | None:
    """Return what the plan needs, or why it does not take it.

    None where the portable plan of matrix instructions says why, or the target is another one.
    """
    if not target.features >= FEATURES:
        return None
    product = cuda_contraction.facts(kernel, target)
    if not isinstance(product, ProductFacts):
        return None
    if product.flat.k.extent == 0:
        return "there is nothing to sum."
    for name, operand in (("a", product.a), ("b", product.b)):
        boxes = _boxes(product.flat, operand)
        if isinstance(boxes, str) and _rows(product, operand) is None:
            return f"factor {name} {boxes}, and the product is too small to rewrite it in rows."
    return product


def describe(facts: ProductFacts, target: Target) -> str:
    """Say how the kernel is cut into tiles, and what the next best would have cost."""
    best, *others = rank(facts, target)
    tiling = best.tiling
    form = "alternating" if tiling.alternates else "together"
    block = f"{tiling.block_m} x {tiling.block_n}{' of n x m' if tiling.swaps else ''}"
    next_best = ", ".join([f"{each.tiling.name} {each.clocks:.0f}" for each in others[:2]])
    rewritten = sum([_rows(facts, each) is not None for each in (facts.a, facts.b)])
    half = "symmetric, " if best.mirrors else ""
    before = f" {rewritten} of 2 factors rewritten in rows before." if rewritten else ""
    return (
        f"wgmma.{WORDS[facts.stored]}, {half}{best.tiles} tiles {block} ({tiling.name}), "
        f"{tiling.consumers} warpgroups {form}, {best.stages} stages: about {best.clocks:.0f} "
        f"clocks; then {next_best}.{before}"
    )


def rank(facts: ProductFacts, target: Target) -> list[Candidate]:
    """Return the tilings, best first."""
    return rank_tilings(need_of(facts), target)


def need_of(facts: ProductFacts) -> Need:
    """Say what a tiling must fit."""
    flat = facts.flat
    return Need(
        work=facts.work,
        k=flat.k.extent,
        tray_columns=tray_columns(flat),
        tray_bytes=tray_bytes(flat),
        a=_side(flat, facts.a),
        b=_side(flat, facts.b),
    )


def _side(flat: FlatContraction, operand: Operand) -> Side:
    boxes = _boxes(flat, operand)
    in_lines = isinstance(boxes, str) or boxes.begin_at_multiples(LINE_BYTES)
    return Side(operand.inner is flat.k, in_lines)


def lower(
    facts: ProductFacts, target: Target, candidate: Candidate | None = None
) -> tuple[Linear, ...]:
    """Emit the product's launch, after those that rewrite factors the engine cannot read.

    Takes:  a kernel with one contraction of halves; operands and stores are any expressions.
    Gives:  LINEAR form of a thread block with roles, bulk copies and products of warpgroups.
    """
    kernel = facts.kernel
    scratch = Builder(kernel.name, kernel.params, kernel.index_dtype)
    factors, launches = [], []
    for operand in (facts.a, facts.b):
        rows = _rows(facts, operand)
        if rows is not None:
            region = scratch.workspace(facts.stored, rows.elements)
            launches.append(write_rows(rows, region, kernel))
            operand = read_rows(rows, region)
        factors.append(operand)
    chosen = candidate or rank(facts, target)[0]
    launches.append(_multiply(facts, factors[0], factors[1], chosen, target))
    scratch_bytes = scratch.finish().workspace_bytes
    return tuple([replace(each, workspace_bytes=scratch_bytes) for each in launches])


def _multiply(
    facts: ProductFacts, a: Operand, b: Operand, chosen: Candidate, target: Target
) -> Linear:
    flat = facts.flat
    if chosen.tiling.swaps:
        flat = replace(flat, a=flat.b, b=flat.a, m=flat.n, n=flat.m)
        a, b = b, a
    boxes = _boxes(flat, a), _boxes(flat, b)
    x, y = [each for each in boxes if isinstance(each, Boxes)]  # the others were rewritten
    word = WORDS[facts.stored]
    return run_pipeline(Pipeline(facts.kernel, flat, (x, y), word, chosen, target.multiprocessors))


def _boxes(flat: FlatContraction, operand: Operand) -> Boxes | str:
    return see_in_boxes(operand.value, operand.inner, operand.outer, flat.outer)


def _rows(facts: ProductFacts, operand: Operand) -> Rows | None:
    """Return the rows that a factor is first rewritten as; None if it is taken as it lies."""
    if not isinstance(_boxes(facts.flat, operand), str) or not cuda_contraction.is_large(facts):
        return None
    rows = rows_of(operand, facts.flat.outer)
    return None if rows.elements > cuda_contraction.MOST_PACKED_ELEMENTS else rows
