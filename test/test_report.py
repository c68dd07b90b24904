"""What DEBUG prints: work counted from the graph, reasons said once, bytes in words."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, config
from tinytensor.ops.kernel import Decision
from tinytensor.report import (
    Planned,
    Work,
    capture,
    launch_line,
    print_launch,
    schedule_lines,
    wants_schedule,
    work_of,
)


def tensor(*shape, dtype=np.float32):
    return Tensor(np.ones(shape, dtype))


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


def test_a_schedule_says_each_reason_once():
    kernel = kernel_of((tensor(8, 8) @ tensor(8, 8) + 1.0) * 2.0)
    plan = [Decision("plan", "loops", "it runs any kernel.")]

    lines = schedule_lines([Planned(kernel, plan, False), Planned(kernel, (), True)])

    told = [
        "  contract  sum of products: batch=1 m=8 n=8 k=8; a f32, b f32, summed in f32.",
        "  fuse      add f32[8,8], mul f32[8,8]: one consumer of each element, in the same space; "
        "nothing is stored between.",
    ]
    assert lines == [
        "kernel 1/2  contract_f32_8x8x8  3 buffers, 768 B, compiled now",
        *told,
        "  plan      loops: it runs any kernel.",
        "kernel 2/2  contract_f32_8x8x8  3 buffers, 768 B, compiled before",
        *told,
    ]


@pytest.mark.parametrize(
    ("shape", "words"),
    [((200,), "800 B"), ((2000,), "8.0 kB"), ((2000, 1000), "8.0 MB")],
)
def test_bytes_are_told_in_a_unit_that_suits_them(shape, words):
    kernel = kernel_of(Tensor.zeros(*shape) + 1.0)

    (line, *_) = schedule_lines([Planned(kernel, (), False)])

    assert line.endswith(f"  1 buffer, {words}, compiled now")


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
