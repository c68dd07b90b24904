"""Which tiling the plan of Hopper's products takes, what it says of it, and what it declines."""

from dataclasses import replace

import pytest
from codegen.plans.test_contraction import plain
from codegen.plans.test_cuda_contraction import biased, double, half, prologue
from codegen.plans.test_cuda_hopper import BF16, BY_NAME, F16, rounded, taken

from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import cuda_hopper, cuda_hopper_tiling
from tinytensor.codegen.plans.cuda_hopper_tiling import TILINGS, estimate
from tinytensor.target import SM80, SM90A


# Which tiling, and why.
@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ((4096, 4096, 4096), ["wide"]),
        ((4096, 4096, 512), ["alternating"]),
        ((2048, 2048, 2048), ["alternating", "wide"]),
        ((1024, 1024, 768), ["half", "flat"]),
        ((512, 4096, 4096), ["square", "alternating"]),
        ((128, 4096, 4096), ["flat", "small"]),
        ((16, 4096, 4096), ["few 16"]),
        ((1000, 1000, 1000), ["square"]),
        ((768, 768, 8192), ["alternating", "square"]),
    ],
    ids=str,
)
def test_the_estimate_finds_what_was_fastest_on_the_device(sizes, names):
    facts = taken(rounded(*sizes, BF16))

    assert cuda_hopper.rank(facts, SM90A)[0].tiling.name in names


def test_a_width_between_is_taken_where_rows_of_n_run_along_k():
    along_k, along_n = [
        [
            each.tiling.name
            for each in cuda_hopper.rank(taken(rounded(*[1536] * 3, BF16, 0, b)), SM90A)
        ]
        for b in (1, 0)
    ]

    assert along_k[0] == "broad 160"
    assert "broad 160" not in along_n


@pytest.mark.parametrize("tiling", TILINGS, **BY_NAME)
@pytest.mark.parametrize("layout", [(0, 1), (1, 0)], ids=["NT", "TN"])
def test_a_tiling_takes_the_shared_memory_it_counts_on(tiling, layout):
    kernel = rounded(256, 256, 256, F16, *layout)
    facts = taken(kernel)
    candidate = estimate(tiling, cuda_hopper.need_of(facts), SM90A)

    (linear,) = cuda_hopper.lower(facts, SM90A, candidate)

    assert candidate.stages > 2
    assert linear.grid.shared_bytes <= SM90A.shared_bytes


def test_the_plan_says_what_a_block_computes_and_what_came_next():
    assert choose(rounded(4096, 4096, 4096), SM90A).decisions[0].reason == (
        "wgmma.f16, 512 tiles 128 x 256 (wide), 2 warpgroups, 4 stages: about 289062 clocks; then "
        "tall 289062, alternating 290210. Sums may be truncated where others round."
    )
    assert choose(rounded(1001, 999, 1003), SM90A).decisions[0].reason == (
        "wgmma.f16, 128 tiles 128 x 64 (half), 2 warpgroups, 8 stages: about 11561 clocks; then "
        "flat 14505, few 32 15643. 2 of 2 factors rewritten in rows before. Sums may be "
        "truncated where others round."
    )


# Declines, which the portable plan then takes.
@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (half(8, 8, 0), "there is nothing to sum."),
        (double(8, 8, 8), "no instruction of warpgroups takes factors of float64."),
        (
            rounded(33, 35, 37),
            "factor a has strides or an offset that 16 bytes do not divide, and the product is too "
            "small to rewrite it in rows.",
        ),
        (
            prologue(F16),
            "factor a is computed, and the product is too small to rewrite it in rows.",
        ),
    ],
    ids=["empty", "doubles", "odd", "prologue"],
)
def test_what_hopper_does_not_take_leaves_a_remark(kernel, reason):
    choice = choose(kernel, SM90A)

    assert choice.plan == "contraction"
    assert [(each.subject, each.reason) for each in choice.decisions[1:]] == [("hopper", reason)]


def test_an_epilogue_that_would_be_unrolled_too_often_is_declined(monkeypatch):
    monkeypatch.setattr(cuda_hopper_tiling, "MOST_OPS", 7)

    assert cuda_hopper.facts(biased(64, 64, 64), SM90A) == (
        "the epilogue is too long to be unrolled over a thread's sums."
    )


def test_other_targets_and_kernels_are_none_of_its_business():
    assert cuda_hopper.facts(rounded(64, 64, 64), SM80) is None
    assert cuda_hopper.facts(plain(64, 64, 64), SM90A) is None
    assert cuda_hopper.facts(replace(plain(8, 8, 8), contraction=None), SM90A) is None
