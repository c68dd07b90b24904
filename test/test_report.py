"""What DEBUG prints: work counted from the graph, reasons said once, bytes in words."""

from dataclasses import replace

import numpy as np
import pytest
from schedule.reading import kernel_lines, kernels_of

from tinytensor import Tensor, config
from tinytensor.captures import wants_schedule
from tinytensor.ops.kernel import Decision
from tinytensor.report import (
    Planned,
    Work,
    capture,
    launch_line,
    load_of,
    moved_by,
    print_launch,
    reads_of,
    schedule_lines,
    spent_by,
    work_of,
    writes_of,
)
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.schedule.take_over import merge_params
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

    lines = kernel_lines([planned(kernel, plan, False, "2 x f32[8,8]"), planned(kernel, (), True)])

    # 2 * 8 ** 3 operations at 240e9 a second and 2 * 64 at 120e9; 3 * 256 bytes at 100e9.
    computing = "computing 5.33 ns (1.02 k flop of f32 products 4.27 ns, 128 simple ops 1.07 ns)"
    moving = "moving 7.68 ns (512 B read, 256 B written)"
    limit = "limited by the launch (99% of it)"
    takes = f"  takes     1.01 us, {limit}: {computing}; {moving}; launch 1 us."
    told = [
        "  contract  sum of products: batch=1 m=8 n=8 k=8; a f32, b f32, summed in f32.",
        "  fuse      add, mul f32[8,8]: each element needs one element of what was folded, at the "
        "same place.",
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
    [
        ((200,), "moving 8 ns (0 B read, 800 B written)"),
        ((2000,), "moving 80 ns (0 B read, 8 kB written)"),
        ((2000, 1000), "moving 80 us (0 B read, 8 MB written)"),
        ((2000, 2000), "moving 427 us (0 B read, 16 MB written)"),  # at 37.5 GB/s, in memory
    ],
)
def test_bytes_are_told_in_a_unit_that_suits_them(shape, words):
    kernel = kernel_of(Tensor.zeros(*shape) + 1.0)

    takes = kernel_lines([planned(kernel)])[1]

    assert f" {words}; launch 1 us." in takes


@pytest.mark.parametrize(
    ("program", "part"),
    [
        # 80 us of moving, 1 of the launch.
        (lambda: tensor(1000, 1000).relu(), "moving (99% of it)"),
        # 1e6 exponentials at 4e9 a second.
        (lambda: tensor(1000, 1000).exp(), "exp (100% of it)"),
        # 80 additions at 120e9 a second take 667 us, two exponentials 500.
        (lambda: plus(plus(tensor(1000, 1000).exp(), 40).exp(), 40), "simple ops (57% of it)"),
        (lambda: tensor(10) + 1.0, "the launch (100% of it)"),
    ],
    ids=["moving", "exp", "simple ops", "launch"],
)
def test_what_takes_longest_limits_a_kernel(program, part):
    takes = kernel_lines([planned(kernel_of(program()))])[1]

    assert f", limited by {part}: " in takes


def plus(x, times):
    for _ in range(times):
        x = x + 1.0
    return x


RATES = [
    "  computing div 15 G/s, exp 4 G/s, flop of f32 products 240 G/s.",
    "  moving    100 GB/s for values up to 8.39 MB, else 75 GB/s read and 37.5 GB/s written.",
    "  launch    1 us, added to the longer of computing and moving, for they overlap.",
]


def test_a_schedule_says_by_what_its_times_are_predicted():
    kernel = kernel_of((tensor(8, 8) @ tensor(8, 8)).exp() / 3.0)

    head, *rates = schedule_lines([planned(kernel)])[:4]

    # 64 exponentials and divisions take 20.3 ns, 64 sums of 8 products 4.27; then the launch.
    assert head == (
        "schedule of 1 kernel, 1.02 us, for CPU with vectors of 64 bytes: predicted by these "
        "rates, not measured"
    )
    assert rates == RATES


def test_a_schedule_of_choices_says_what_their_times_are():
    kernel = kernel_of((tensor(8, 8) @ tensor(8, 8)).exp() / 3.0)
    told = Decision("apart", "from kernel 1", "it comes from a fold.")

    head = schedule_lines([replace(planned(kernel), apart=[told])])[1:7]

    assert head == [
        *RATES,
        "  choices   are by how much longer all kernels concerned take; a reason without times, or "
        "marked `a rule`, holds at any cost.",
        "            holding a value from its first reader to its last fills memory: priced as "
        "copying it 8 times, at 50 GB/s;",
        "            half of that where the last reader comes only one kernel after the first, "
        "nothing where none comes later.",
    ]


def test_a_buffer_that_is_computed_in_place_is_read_and_written():
    kernel = kernel_of(tensor(8) + 1.0)

    in_place = merge_params(kernel, {0: 1})

    assert (moved_by(kernel), moved_by(in_place)) == ((32, 32), (32, 32))


def test_a_kernel_says_who_made_what_it_reads():
    x = tensor(4, 3)

    texts = reads_of(calls_of((x @ x.T + 1.0) @ x))

    assert texts == ["f32[4,3]", "f32[4,3]; f32[4,4] of kernel 1"]


@pytest.mark.parametrize(("columns", "times"), [(100, 1), (1_000_000, 2)])
def test_functions_of_a_row_are_computed_once_where_it_stays_on_chip(columns, times):
    wave = tensor(2, columns).exp()
    (kernel,) = kernels_of(wave + wave.sum(1, keepdim=True), target=NEVER_STORED)

    spent = spent_by(kernel, CPU_AVX512)["exp"]

    assert spent.count == times * 2 * columns


def test_a_kernel_says_for_whom_it_writes():
    x = tensor(4, 3)
    y = x @ x.T + 1.0

    texts = writes_of(
        schedule(
            [y.uop, (y @ x).uop, y.T.flip(0).sum(1, keepdim=True).uop],
            CPU_AVX512,
            Options(2, True, False),
        )
    )

    assert texts == [
        "f32[4,4] for kernels 2, 3",
        "f32[4,3] for the caller",
        "f32[4,1] for the caller",
    ]


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


def test_launches_have_a_heading_below_their_schedule(capsys):
    with config(debug=2):
        (tensor(11) * 7.0).realize()

    *_, heading, launch = capsys.readouterr().err.splitlines()
    assert heading == (
        "launches, measured: the first one of a kernel is cold; GFLOP/s counts operations on "
        "floats, a function as one, and no choice or comparison"
    )
    assert launch.split()[1] == "pointwise_f32_11"


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
