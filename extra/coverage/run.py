"""Runs a record in both libraries, aspect by aspect, and collects how they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import tinytensor
import tinytensor.nn.functional
from extra.coverage.compare import (
    Oracle,
    difference,
    first_line,
    is_unsupported,
    outcome,
    tensors_in,
)
from extra.coverage.record import (
    DTYPES,
    FLOATS,
    Call,
    Example,
    Library,
    Record,
    Result,
    Tolerance,
    invoke,
    resolve,
)
from extra.coverage.samples import LAYOUTS, laid_out, pair_of, values_of
from tinytensor import Tensor, autograd

ASPECTS = ("forward", "gradient", "empty", "zero-dim", "non-contiguous", "broadcast")
LEADS = ("float32", "int64", "bool")  # the dtypes of the aspects that are not about dtypes
# A gradient is a formula of some ten ops, of which halves round each.
GRADIENT = Tolerance(64, 0, "largest")
HALF_GRADIENT = Tolerance(64, 0, "largest", half_roundings=16)


@dataclass(frozen=True)
class Case:
    """One comparison that is still to be made."""

    aspect: str
    dtype: str
    ours: Result
    oracle: Oracle
    tolerance: Tolerance
    label: str
    number: int = 0  # of the example, where every dtype is run


@dataclass(frozen=True)
class Verdict:
    """What was found of one operator."""

    name: str
    is_missing: bool
    cells: dict[str, str]
    dtypes: tuple[str, ...]
    problems: tuple[str, ...]
    note: str

    @property
    def counts(self) -> bool:
        """Whether nothing is missing and nothing differs."""
        return not self.is_missing and not self.problems


def run_record(record: Record, library: Library) -> Verdict:
    """Compare one operator with PyTorch in every aspect that applies."""
    if resolve(tinytensor, record.path) is None:
        return Verdict(record.name, True, {}, (), (), record.note)
    cases = list(all_cases(record, library))
    compute_together([each for case in cases for each in tensors_in(case.ours)])
    problems = never_taken(record, cases)
    failed: set[tuple[str, str]] = set()
    for case in cases:
        found = difference(case.ours, case.oracle, case.tolerance)
        if found and not (record.is_wider and is_unsupported(case.oracle.own)):
            problems.append(f"{record.name}: {case.aspect} of {case.dtype}: {case.label} {found}")
            failed.add((case.aspect, case.dtype))
    passed = [name for name in DTYPES if is_passed(name, cases, failed)]
    cells = {aspect: cell_of(aspect, record, cases, failed) for aspect in ASPECTS}
    return Verdict(record.name, False, cells, tuple(passed), tuple(problems), record.note)


def never_taken(record: Record, cases: Sequence[Case]) -> list[str]:
    """Find examples that PyTorch refuses in every dtype: then there is nothing to compare.

    But what is in place does refuse results of fixed dtypes that its operand cannot hold.
    """
    found: dict[int, list[Result]] = {}
    for case in cases:
        may_refuse = record.is_in_place and case.dtype == "fixed"
        if case.aspect == "forward" and not may_refuse:
            found.setdefault(case.number, []).append(case.oracle.own)
    return [
        f"{record.name}: example {number} is never taken: {first_line(own[0])}"
        for number, own in found.items()
        if all([isinstance(each, Exception) for each in own])
    ]


def is_passed(dtype: str, cases: Sequence[Case], failed: set[tuple[str, str]]) -> bool:
    """Tell whether PyTorch takes a dtype, and every result in it was right."""
    own = [case for case in cases if (case.aspect, case.dtype) == ("forward", dtype)]
    is_taken = any([not isinstance(case.oracle.own, Exception) for case in own])
    return is_taken and ("forward", dtype) not in failed


def cell_of(
    aspect: str, record: Record, cases: Sequence[Case], failed: set[tuple[str, str]]
) -> str:
    """Say what the table shows of an aspect: yes, fails, refused, or why it does not apply."""
    reasons = {
        "gradient": record.gradient,
        "empty": record.empty,
        "zero-dim": record.zero_dim,
        "non-contiguous": record.layouts,
        "broadcast": record.broadcast,
    }
    reason = reasons.get(aspect, "")
    if isinstance(reason, str) and reason:
        return reason
    own = [case for case in cases if case.aspect == aspect]
    if any([name == aspect for name, _ in failed]):
        return "fails"
    if all([isinstance(case.oracle.own, Exception) for case in own]):
        return "refused" if own else "none"
    return "yes"


def compute_together(tensors: Sequence[Tensor]) -> None:
    """Realize as one schedule, so that kernels compile in parallel; errors show one by one."""
    if tensors:
        outcome(lambda: tensors[0].realize(*tensors[1:]))


# The cases of each aspect.
def all_cases(record: Record, library: Library) -> Iterator[Case]:
    """Return the cases of all aspects that apply."""
    for number, example in enumerate(record.examples):
        for dtype in swept(example):
            for case in forward(record, example, dtype, library, "forward"):
                yield replace(case, number=number)
        if not record.gradient:
            for dtype in FLOATS:
                yield from gradient(record, example, dtype, library)
    if not record.layouts:
        yield from of_layouts(record, library)
    derived = {
        "empty": (record.empty, Example.emptied),
        "zero-dim": (record.zero_dim, Example.without_axes),
        "broadcast": (record.broadcast, None),
    }
    for aspect, (examples, derive) in derived.items():
        if isinstance(examples, str) and examples:
            continue
        chosen = examples or (derive(record.examples[0]),)
        for example in chosen:
            yield from of_leads(record, example, library, aspect)


def swept(example: Example) -> Sequence[str]:
    """Return the dtypes of an example: one, when all of its operands have their own."""
    return DTYPES if any([not each.dtype for each in example.operands]) else ("fixed",)


def leads(record: Record, example: Example, library: Library) -> Sequence[str]:
    """Return the dtypes of aspects that are not about dtypes: some of those that PyTorch takes."""
    if "fixed" in swept(example):
        return ("fixed",)
    taken = []
    for dtype in LEADS:
        _, theirs, _, _ = operands_of(record.examples[0], dtype, "", library)
        own = outcome(partial(invoke, library, record, record.examples[0], theirs))
        taken += [] if isinstance(own, Exception) else [dtype]
    return taken or LEADS[:1]


def of_leads(record: Record, example: Example, library: Library, aspect: str) -> Iterator[Case]:
    """Return an aspect's cases in a few dtypes, and its gradient."""
    for dtype in leads(record, example, library):
        yield from forward(record, example, dtype, library, aspect)
    if not record.gradient:
        yield from gradient(record, example, "float64", library, aspect)


def of_layouts(record: Record, library: Library) -> Iterator[Case]:
    """Return the cases of operands that are views of others."""
    for layout in LAYOUTS:
        for example in record.examples:
            dtype = leads(record, example, library)[0]
            yield from forward(record, example, dtype, library, "non-contiguous", layout)
        if not record.gradient:
            example = record.examples[0]
            yield from gradient(record, example, "float64", library, "non-contiguous", layout)


def operands_of(
    example: Example,
    dtype: str,
    layout: str,
    library: Library,
    leaves: bool = False,
    narrow: str = "",
) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Return the operands of both libraries, and the leaves they are views of."""
    lists: tuple[list[Any], ...] = ([], [], [], [])
    for number, operand in enumerate(example.operands):
        name = operand.dtype or dtype
        values = values_of(operand, name, str(number))
        if leaves:  # the gradient of NaN is nobody's promise
            values = np.nan_to_num(values, nan=0.25, posinf=np.inf, neginf=-np.inf)
        stored, view = laid_out(values, layout if values.ndim else "")
        is_leaf = leaves and not operand.dtype and name in FLOATS
        pair = pair_of(stored, library, name, "" if operand.dtype else narrow, is_leaf)
        for views, leaf in zip(lists[:2], pair, strict=True):
            views.append(view(leaf))
        for kept, leaf in zip(lists[2:], pair, strict=True):
            kept += [leaf] if is_leaf else []
    return lists  # type: ignore[return-value]  # four lists


def forward(
    record: Record, example: Example, dtype: str, library: Library, aspect: str, layout: str = ""
) -> Iterator[Case]:
    """Return the comparison of an example's results in one dtype."""
    ours, theirs, _, _ = operands_of(example, dtype, layout, library)
    result = outcome(partial(invoke, tinytensor, record, example, ours))
    own = outcome(partial(invoke, library, record, example, theirs))
    wide = magnitudes = None
    swept_places = [not each.dtype for each in example.operands]
    if record.tolerance.roundings:
        lifted = [
            each.double() if is_swept or each.is_floating_point() else each
            for each, is_swept in zip(theirs, swept_places, strict=True)
        ]
        wide = result_or_none(partial(invoke, library, record, example, lifted))
        sizes = [each.abs() if each.is_floating_point() else each for each in lifted]
        magnitudes = result_or_none(partial(invoke, library, record, example, sizes))
    if is_unsupported(own) and wide is not None and dtype in FLOATS[:2]:
        own = in_dtype(wide, getattr(library, dtype))
    label = f"{layout} {[each.shape for each in example.operands]} {example.options or ''}"
    is_typed = aspect in ("forward", "empty")
    oracle = Oracle(own, wide, magnitudes, is_refusal_typed=is_typed)
    yield Case(aspect, dtype, result, oracle, record.tolerance, label)


def gradient(
    record: Record,
    example: Example,
    dtype: str,
    library: Library,
    aspect: str = "gradient",
    layout: str = "",
) -> Iterator[Case]:
    """Return the comparison of gradients with PyTorch's float64, and of second derivatives."""
    ours, theirs, leaves, _ = operands_of(example, dtype, layout, library, True)
    _, lifted, _, places = operands_of(example, "float64", layout, library, True, dtype)
    own = outcome(partial(invoke, library, record, example, theirs))
    wide = outcome(partial(invoke, library, record, example, lifted))
    result = outcome(partial(invoke, tinytensor, record, example, ours))
    is_none = not places or isinstance(wide, Exception) or isinstance(result, Exception)
    if is_none or (isinstance(own, Exception) and not is_unsupported(own)):
        return
    pairs = [
        pair
        for pair in zip(listed(result), listed(wide), strict=True)
        if getattr(pair[1], "requires_grad", False)
    ]
    if not pairs:
        yield Case(aspect, dtype, result, Oracle(wide), record.tolerance, "has no gradient")
        return
    label = f"{layout} {[each.shape for each in example.operands]} {example.options or ''}"
    found = outcome(partial(slopes, autograd, [pair[0] for pair in pairs], leaves, ours_weight))
    weight = partial(their_weight, library)
    known = outcome(partial(slopes, library.autograd, [pair[1] for pair in pairs], places, weight))
    tolerance = HALF_GRADIENT if dtype in FLOATS[:2] else GRADIENT
    own = known if isinstance(known, Exception) else in_dtype(known, getattr(library, dtype))
    wide = None if isinstance(known, Exception) else known
    oracle = Oracle(own, wide, error=record.slope_error)
    yield Case(aspect, dtype, found, oracle, tolerance, f"gradient {label}")
    if dtype == "float64" and not isinstance(found, Exception) and not isinstance(known, Exception):
        seconds = partial(
            second, library=library, label=label, aspect=aspect, error=record.slope_error
        )
        yield from seconds(found, leaves, known, places)


def second(
    found: Result,
    leaves: Sequence[Tensor],
    known: Result,
    places: Sequence[Result],
    *,
    library: Library,
    label: str,
    aspect: str,
    error: float,
) -> Iterator[Case]:
    """Return the comparison of second derivatives; what is not differentiable has zeros."""
    rows = [each for each in known if each.requires_grad]
    own = [each for each in found if each.requires_grad]
    if not rows:
        return
    weight = partial(their_weight, library)
    theirs = outcome(partial(slopes, library.autograd, rows, places, weight))
    if isinstance(theirs, Exception):  # PyTorch has no second derivative here
        return
    zeros = [each.zeros_like() for each in leaves]
    ours = outcome(partial(slopes, autograd, own, leaves, ours_weight)) if own else zeros
    tolerance = Tolerance(4 * GRADIENT.roundings, 0, "largest")
    oracle = Oracle(theirs, theirs, error=error)
    yield Case(aspect, "float64", ours, oracle, tolerance, f"second {label}")


def slopes(module: Library, results: Sequence[Any], leaves: Sequence[Any], weight: Call) -> Result:
    """Return the gradients of weighted results by leaves, zeros where there are none."""
    weights = [weight(each) for each in results]
    return module.grad(
        results, leaves, weights, create_graph=True, materialize_grads=True, allow_unused=True
    )


def weights_of(shape: Sequence[int]) -> np.ndarray:
    """Return an upstream gradient of any shape."""
    return np.cos(np.arange(math.prod(shape))).reshape(tuple(shape))


def ours_weight(result: Tensor) -> Tensor:
    """Return the upstream gradient of a result."""
    return Tensor(weights_of(result.shape), dtype=result.dtype)


def their_weight(library: Library, result: Result) -> Result:
    """Return the upstream gradient of a result of PyTorch."""
    return library.tensor(weights_of(result.shape)).to(result.dtype)


def listed(result: Result) -> list[Any]:
    """Return the results of an operator as a list."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def in_dtype(result: Result, dtype: Result) -> Result:
    """Return float results in another dtype."""
    if isinstance(result, (tuple, list)):
        return [in_dtype(each, dtype) for each in result]
    return result.to(dtype) if result.is_floating_point() else result


def result_or_none(call: Call) -> Result:
    """Return what a call gives; None if it raises."""
    found = outcome(call)
    return None if isinstance(found, Exception) else found
