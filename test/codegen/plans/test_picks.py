"""What the estimates choose for products is nearly the fastest of what was measured."""

import json
from pathlib import Path

import pytest

from extra.bench import sweep
from tinytensor.codegen.plan import take
from tinytensor.target import SM90A

KEPT = Path(__file__).parents[3] / "docs" / "measurements" / "h200-sweep.jsonl"
LEAST = 0.93  # of the speed of the fastest
PRODUCTS = {each.name: each for each in sweep.PRODUCTS}
SPEEDS = {
    each["work"]: each["speeds"]
    for each in map(json.loads, KEPT.read_text("utf-8").splitlines())
    if "speeds" in each
}


class Hopper:
    """Stands for a device on which nothing runs."""

    name = "CPU"
    target = SM90A


@pytest.mark.parametrize("work", SPEEDS)
def test_a_pick_is_nearly_as_fast_as_the_best_that_was_measured(work):
    product, speeds = PRODUCTS[work], SPEEDS[work]
    target = SM90A.with_fp32_matmul(product.how)
    taken = take(sweep.kernel_of(product, Hopper, target), target)

    pick, *others = [each.name for each in taken.plan.candidates(taken.facts, target)]

    known = [speeds[each] for each in (pick, *others) if each in speeds]
    assert len(known) >= 8
    assert speeds[pick] >= LEAST * max(known)


def test_most_products_of_the_sweep_were_measured():
    assert set(SPEEDS) <= set(PRODUCTS)
    assert len(SPEEDS) >= 0.9 * len(PRODUCTS)
