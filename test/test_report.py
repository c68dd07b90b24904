"""What DEBUG prints: work counted from the graph, reasons said once, bytes in words."""

from dataclasses import replace

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, config
from tinytensor.captures import wants_schedule
from tinytensor.ops.kernel import Decision
from tinytensor.report import (
    Planned,
    Work,
    capture,
    launch_line,
    load_of,
    print_launch,
    reads_of,
    schedule_lines,
    work_of,
)
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX512


def tensor(*shape, dtype=np.float32):
    return Tensor(np.ones(shape, dtype))


# Nothing is stored for being read often, so that each program is one kernel.
NEVER_STORED = replace(CPU_AVX512, rates=replace(CPU_AVX512.rates, launch_seconds=1.0))


def calls_of(value):
    return schedule([value.uop], CPU_AVX512, Options(2, verify=True, stress=False))


def kernel_of(value):
    (kernel,) = kernels_of(value)
    return kernel


@pytest.mark.parametrize(
    ("program", "work"),
    [
        # One addition for each of 12 elements; 12 floats are read and 12 written.
        (lambda: tensor(3, 4) + 1.0, Work(12, 96)),
        # Comparing and choosing is no arithmetic.
        (lambda: tensor(3, 4).relu(), Work(0, 96)),
        # Integers are no floating point operations.
        (lambda: tensor(5, dtype=np.int32) + 1, Work(0, 40)),
        # A sum of 4: one multiplication and one addition for each element; 3 are written.
        (lambda: (tensor(3, 4) * 2.0).sum(1), Work(3 * 4 * 2, 48 + 12)),
        # A factor of the row is computed once a row: 3; 12 multiplications; a sum of 12 terms.
        (lambda: (tensor(3, 1).exp() * tensor(3, 4)).sum(), Work(3 + 12 + 12, 12 + 48 + 4)),
        # 2 * 3 * 3 * 4 of the product and one addition a result.
        (lambda: (lambda x: x @ x.T + 1.0)(tensor(3, 4)), Work(72 + 9, 48 + 36)),
    ],
    ids=["pointwise", "choice", "integers", "sum", "row", "contraction"],
)
def test_work_is_counted_from_the_graph(program, work):
    assert work_of(kernel_of(program())) == work


def test_a_launch_line_has_its_rates():
    kernel = kernel_of(tensor(1000, 1000) + 1.0)

    line = launch_line(kernel, "CPU", 500.0)

    # 10**6 operations and 8 * 10**6 bytes in 500 us.
    assert line.split() == [
        *("CPU", "pointwise_f32_1000x1000", "500.0", "us"),
        *("2.00", "GFLOP/s", "16.00", "GB/s"),
    ]


def test_a_launch_too_short_to_time_has_a_rate_all_the_same():
    assert "inf" not in launch_line(kernel_of(tensor(2) + 1.0), "CPU", 0.0)


def test_a_launch_is_printed_to_stderr(capsys):
    kernel = kernel_of(tensor(2) + 1.0)

    print_launch(kernel, "CPU", 1.0)

    assert capsys.readouterr() == ("", launch_line(kernel, "CPU", 1.0) + "\n")


def planned(kernel, plan=(), was_compiled=False, reads=""):
    return Planned(kernel, reads, plan, was_compiled, CPU_AVX512)


def test_a_schedule_says_each_reason_once():
    kernel = kernel_of((tensor(8, 8) @ tensor(8, 8) + 1.0) * 2.0)
    plan = [Decision("plan", "loops", "it runs any kernel.")]

    lines = schedule_lines(
        [planned(kernel, plan, False, "2 x f32[8,8]"), planned(kernel, (), True)]
    )

    # 2 * 8 ** 3 + 2 * 64 operations; 1024 / 240e9 + 128 / 120e9 s; 3 * 256 bytes / 100e9 s.
    parts = "1.15 kflop 5.33 ns, 768 B 7.68 ns, launch 1 us."
    takes = f"  takes     1.01 us, limited by the launch: {parts}"
    told = [
        "  contract  sum of products: batch=1 m=8 n=8 k=8; a f32, b f32, summed in f32.",
        "  fuse      add, mul f32[8,8]: each element has one reader, in the same space.",
        "  store     mul f32[8,8]: its value was asked for.",
    ]
    assert lines == [
        "kernel 1/2  contract_f32_8x8x8  compiled now",
        "  reads     2 x f32[8,8].",
        takes,
        *told,
        "  plan      loops: it runs any kernel.",
        "kernel 2/2  contract_f32_8x8x8  compiled before",
        takes,
        *told,
    ]


@pytest.mark.parametrize(
    ("shape", "words"),
    [((200,), "800 B 8 ns"), ((2000,), "8 kB 80 ns"), ((2000, 1000), "8 MB 80 us")],
)
def test_bytes_are_told_in_a_unit_that_suits_them(shape, words):
    kernel = kernel_of(Tensor.zeros(*shape) + 1.0)

    takes = schedule_lines([planned(kernel)])[1]

    assert f", {words}, launch 1 us." in takes


@pytest.mark.parametrize(
    ("program", "part"),
    [
        (lambda: tensor(1000, 1000).relu(), "memory"),
        (lambda: tensor(1000, 1000).exp(), "arithmetic"),
        (lambda: tensor(10) + 1.0, "the launch"),
    ],
)
def test_what_takes_longest_limits_a_kernel(program, part):
    takes = schedule_lines([planned(kernel_of(program()))])[1]

    assert f", limited by {part}: " in takes


def test_a_kernel_says_who_made_what_it_reads():
    x = tensor(4, 3)

    texts = reads_of(calls_of((x @ x.T + 1.0) @ x))

    assert texts == ["f32[4,3]", "f32[4,3]; f32[4,4] of kernel 1"]


ADDITION, EXPONENTIAL, MULTIPLICATION = 1 / 120e9, 1 / 4e9, 1 / 120e9
PRODUCT = 2 / 240e9


@pytest.mark.parametrize(
    ("program", "seconds"),
    [
        # What varies over the inner range is computed again for each value of the outer one.
        (lambda: tensor(6, 4) + tensor(4).exp(), 24 * (ADDITION + EXPONENTIAL)),
        # What varies over the outer range alone is computed once for each of its values.
        (lambda: tensor(6, 4) + tensor(6, 1).exp(), 24 * ADDITION + 6 * EXPONENTIAL),
        # A panel has 768 KiB / 4 KiB = 192 columns: the left factor is computed twice.
        (
            lambda: tensor(8, 1024).exp() @ tensor(1024, 200),
            8 * 1024 * 200 * PRODUCT + 2 * 8 * 1024 * EXPONENTIAL,
        ),
    ],
    ids=["inner", "outer", "factor"],
)
def test_arithmetic_is_priced_as_loops_run_it(program, seconds):
    load = load_of(kernels_of(program(), target=NEVER_STORED)[-1], CPU_AVX512)

    assert load.arithmetic == pytest.approx(seconds, rel=1e-12)


def test_a_schedule_is_wanted_by_debug_2_and_by_a_capture():
    with config(debug=1):
        assert not wants_schedule()
        with capture():
            assert wants_schedule()
        assert not wants_schedule()
    with config(debug=2):
        assert wants_schedule()


def test_captures_may_be_nested():
    x = tensor(7)
    with capture() as outer:
        (x + 3.0).realize()
        with capture() as inner:
            (x * 3.0).realize()

    assert [len(outer), len(inner)] == [2, 1]
    assert outer[1] is inner[0]


def test_debug_3_prints_every_form(capsys):
    with config(debug=3):
        (tensor(3) * 5.0).realize()

    printed = capsys.readouterr().err
    headings = [line.split(" pointwise")[0] for line in printed.splitlines() if "---" in line]
    assert headings == ["--- TENSOR", "--- INDEXED", "--- LINEAR"]


def test_debug_4_prints_the_source(capsys):
    with config(debug=4):
        (tensor(3) * 6.0).realize()

    assert "--- SOURCE pointwise_f32_3\n" in capsys.readouterr().err
