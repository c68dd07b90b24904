"""Two kernels, one of which reads what the other stores, have one line that says why."""

import numpy as np
import pytest
from schedule.reading import apart_lines, kernels_of

from extra.examples.block import build
from tinytensor import Tensor
from tinytensor.report import apart_of, reads_of
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX512


def ones(*shape):
    return Tensor(np.ones(shape, np.float32))


def product_of_product():
    return (ones(4, 3) @ ones(3, 5)) @ ones(5, 6)


def residual_of_product():
    first = ones(4, 3) @ ones(3, 5)
    return ones(4, 7) @ ones(7, 5) + first


def rows_of_product():
    return (ones(4, 3) @ ones(3, 5)).amax(1)


def rows_of_rows():
    return ones(4, 3, 5).exp().sum(2).amax(1)


def turned_product():
    product = ones(4, 3) @ ones(3, 4)
    return product + product.T


def rows_before_product():
    x = ones(64, 512)
    return (x - x.mean(1, keepdim=True)) @ ones(512, 512)


def stored_function():
    return ones(1000, 1000) + ones(1000).exp()


SPARED = "Joined, they would spare at most a launch and {} of moving."
ONE_SUM = "a kernel that sums products has no other fold."


@pytest.mark.parametrize(
    ("program", "reason", "spared"),
    [
        (
            product_of_product,
            "reduce[add] f32[4,5,1]: it comes from a fold there and is a factor here, each element "
            "for 6 products; a factor is loaded or elementwise, never folded.",
            "160 B",
        ),
        (
            residual_of_product,
            "reduce[add] f32[4,5,1]: it comes from a fold there and is read beside the sum here; "
            f"{ONE_SUM}",
            "160 B",
        ),
        (
            rows_of_product,
            "reduce[add] f32[4,5,1]: its products are summed in tiles, and a tile need not hold a "
            f"whole row that is folded here; {ONE_SUM}",
            "160 B",
        ),
        (
            rows_of_rows,
            "reduce[add] f32[4,3,1]: here [4, 3] is folded to [4, 1], there [4, 3, 5] to [4, 3, "
            "1]: one kernel folds rows of one kind.",
            "96 B",
        ),
        (
            turned_product,
            "reduce[add] f32[4,4,1]: add f32[4,4]: it reads two different elements of the "
            "result; the result is stored.",
            "128 B",
        ),
        (
            stored_function,
            "exp f32[1000]: to store it takes 1.29 us, to compute it in its readers 178 us.",
            "8 kB",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_kernel_says_why_it_is_apart_from_one_that_it_reads(program, reason, spared):
    told = apart_lines(program())

    # What is spared is written once and read once.
    assert told == [f"kernel 2 from kernel 1: {reason} {SPARED.format(spared)}"]


def test_a_factor_whose_end_is_elementwise_refers_to_its_price():
    (told,) = apart_lines(rows_before_product())

    assert told.endswith(
        "never folded; `store` there says why the elementwise ops behind the fold are not here. "
        + SPARED.format("262 kB")
    )


def test_what_was_asked_for_is_read():
    x = ones(9).exp()

    told = apart_lines(x, x.sum() * 2.0, fuse=1)

    assert told == [
        "kernel 2 from kernel 1: exp f32[9]: it was asked for, so it is stored; what is "
        f"stored is read. {SPARED.format('72 B')}"
    ]


@pytest.mark.parametrize(
    ("fuse", "reason"),
    [
        (0, "TT_FUSE=0: one kernel per op."),
        (1, "TT_FUSE=1: kernels over the same rows stay apart."),
    ],
)
def test_a_setting_is_a_reason(fuse, reason):
    x = ones(4, 5)
    highest = x.amax(1, keepdim=True)

    told = apart_lines((x - highest).sum(1), fuse=fuse)

    assert {each.split(": ", 2)[2].partition(" Joined")[0] for each in told} == {reason}


def test_each_pair_of_a_block_has_one_line():
    calls = schedule([build().uop], CPU_AVX512, Options(3, verify=False, stress=False))

    pairs = [[each.subject for each in told] for told in apart_of(calls)]
    read = [
        [f"from {each[each.index('kernel') :]}" for each in text.split("; ") if "kernel" in each]
        for text in reads_of(calls)
    ]
    assert pairs == read
    assert sum(map(len, pairs)) == 10


def test_a_value_is_named_as_by_the_kernel_that_stores_it():
    calls = schedule([build().uop], CPU_AVX512, Options(3, verify=False, stress=False))
    stored = [
        {each.subject for each in call.kernel.decisions if each.kind == "store"} for call in calls
    ]

    told = [each for apart in apart_of(calls) for each in apart]

    makers = [int(each.subject.removeprefix("from kernel ")) for each in told]
    names = [each.reason.partition(": ")[0] for each in told]
    assert all(name in stored[maker - 1] for name, maker in zip(names, makers, strict=True))
    assert any("#" in name for name in names)


def test_equal_layers_have_equal_reasons():
    x = ones(64, 64)
    for _ in range(3):
        x = (x @ ones(64, 64)).softmax(1)

    told = {each.split(": ", 1)[1] for each in apart_lines(x)}

    assert len(kernels_of(x)) == 6
    assert len(told) == 3  # rows of a product; a product as a factor, and what folds it
