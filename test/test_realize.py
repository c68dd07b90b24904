"""Values are computed once, together, in any order, and an error loses nothing."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Device, Tensor, config, dtypes
from tinytensor.errors import CompileError
from tinytensor.ops import uop
from tinytensor.ops.op import Op
from tinytensor.realize import storage_of


def test_several_values_are_one_schedule():
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    total, doubled = x.sum(), x * 2

    total.realize(doubled)

    assert total.uop.op is Op.BUFFER
    assert doubled.uop.op is Op.BUFFER
    assert (total.item(), doubled.tolist()) == (15.0, [[0, 2, 4], [6, 8, 10]])


def test_a_value_somebody_kept_is_not_computed_again():
    x = Tensor(np.ones((4, 4), np.float32))
    product = x @ x
    later = product + 1.0
    product.realize()

    launches = launches_of(later)

    assert launches == ["pointwise_f32_4x4"]


def launches_of(tensor):
    """The kernels a realization launches, read from what DEBUG=1 prints."""
    with pytest.MonkeyPatch.context() as patch:
        seen = []
        patch.setattr("tinytensor.report.print_launch", lambda k, *_: seen.append(k.name))
        with config(debug=1):
            tensor.realize()
    return seen


def read_element(x):
    return x[0]


def read_part(x):
    return (x[3:] * 2.0).sum()


@pytest.mark.parametrize("read", [read_element, read_part])
def test_what_was_written_is_computed_with_what_reads_it(read):
    """Else each read of a state that grows by writes would make all of them again."""
    x = Tensor(np.arange(32, dtype=np.float32))
    launches = []
    for _ in range(4):
        x[2:9] *= 2.0
        x += 1.0
        launches.append(launches_of(read(x)))

    assert launches[1:] == [launches[1]] * 3
    assert launches_of(x) == []
    expected = np.arange(32, dtype=np.float32)
    for _ in range(4):
        expected[2:9] *= 2
        expected += 1
    assert x.tolist() == expected.tolist()


def test_a_reshaped_result_shares_its_memory():
    x = Tensor(np.arange(1024, dtype=np.float32)).realize()
    flat = x + 1.0
    square = flat.reshape(32, 32)
    gc.collect()
    before = Device["CPU"].memory().allocated

    flat.realize(square)

    assert Device["CPU"].memory().allocated - before == 4 * 1024
    assert square[31, 30:].tolist() == [1023, 1024]


def test_intermediates_give_their_memory_back():
    x = Tensor(np.ones((256, 256), np.float32))
    (x.softmax(-1)).realize()
    gc.collect()
    before = Device["CPU"].memory().allocated

    y = x
    for _ in range(20):
        y = (y @ y).softmax(-1)
    y.realize()
    gc.collect()

    assert Device["CPU"].memory().allocated - before == y.numel() * 4


def test_an_error_while_compiling_leaves_every_tensor_as_it_was(monkeypatch):
    x = Tensor(np.ones(7, np.float32))
    y = (x * 3.0 + 0.625).relu()
    expression = y.uop
    device = type(Device["CPU"])

    def fail(self, programs):
        raise CompileError("cpu: it does not compile.")

    monkeypatch.setattr(device, "compile", fail)
    with pytest.raises(CompileError, match="while computing the value made at .*test_realize.py"):
        y.realize()
    monkeypatch.undo()

    assert y.uop is expression
    assert y.tolist() == [3.625] * 7


@pytest.mark.parametrize("stress", [0, 1])
def test_the_order_of_ready_kernels_does_not_matter(stress):
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    parts = [x.sum(0), x.amax(1), x @ x.T, x.sum(1, keepdim=True) + x.amax(0, keepdim=True)]

    with config(stress=stress):
        parts[0].realize(*parts[1:])

    array = np.arange(12).reshape(3, 4)
    assert parts[0].tolist() == array.sum(0).tolist()
    assert parts[1].tolist() == array.max(1).tolist()
    assert parts[2].tolist() == (array @ array.T).tolist()
    assert parts[3].tolist() == (array.sum(1, keepdims=True) + array.max(0)).tolist()


def test_a_chain_of_twenty_thousand_ops_builds_and_realizes():
    x = Tensor(np.zeros(3, np.float32))
    for _ in range(20_000):
        x = x + 1.0

    assert x.tolist() == [20_000.0] * 3


def test_equal_graphs_on_other_buffers_reuse_one_schedule(monkeypatch):
    def line(x):
        return ((x @ x.T) * 0.5 + 1.0).relu()

    x, y = (Tensor(np.full((5, 5), value, np.float32)) for value in (1, 2))
    line(x).realize()
    monkeypatch.setattr("tinytensor.planning.schedule", None)

    assert line(y).tolist() == [[11.0] * 5] * 5


def test_equal_buffers_stay_equal_in_the_key():
    x, y = (Tensor(np.full((3, 3), value, np.float32)) for value in (1, 2))

    same, different = (x @ x - x * 0.25).numpy(), (x @ y - x * 0.25).numpy()

    assert same.tolist() == [[2.75] * 3] * 3
    assert different.tolist() == [[5.75] * 3] * 3


def test_a_copy_to_another_device_computes_where_its_source_lives():
    x = Tensor(np.arange(4, dtype=np.float32), device="PYTHON")
    moved = (x + 1.0).to("CPU") * 2.0

    assert moved.device == "CPU"
    assert moved.tolist() == [2, 4, 6, 8]


def test_constants_and_empty_results_need_no_leaf():
    assert Tensor.full((2, 2), 7, dtype=dtypes.int8).tolist() == [[7, 7], [7, 7]]
    assert Tensor.zeros(0, 3).sum(0).tolist() == [0.0, 0.0, 0.0]
    assert Tensor.zeros(0, 3).numpy().shape == (0, 3)


def test_the_two_lines_are_one_kernel_each():
    x, weight = (Tensor.zeros(8, 6, dtype=dtypes.float16) for _ in range(2))
    bias = Tensor(np.zeros(8, np.float16))
    square = Tensor(np.ones((4, 4), np.float32))

    assert len(kernels_of(x.matmul(weight.T) + bias)) == 1
    assert len(kernels_of((square @ square.T + 1.0).relu())) == 1


def visits(counted):
    """A stand-in for `walk` that counts the nodes it lists."""

    def walk(roots, stop=frozenset()):
        nodes = uop.walk(roots, stop)
        counted.append(len(nodes))
        return nodes

    return walk


def test_a_schedule_visits_nodes_in_proportion_to_the_graph(monkeypatch):
    seen = {}
    for length in (50, 100, 200):
        counted = []
        for module in ("schedule.schedule", "schedule.contraction", "schedule.kernels"):
            monkeypatch.setattr(f"tinytensor.{module}.walk", visits(counted))
        x = Tensor(np.ones((4, 4), np.float32))
        for _ in range(length):
            x = (x @ x).relu() + 1.0
        kernels_of(x)
        seen[length] = sum(counted) / length

    assert seen[200] <= 1.1 * seen[50]
    assert seen[200] <= 600  # nodes visited per line of 12 nodes, all passes and checks together


def test_equal_constants_that_are_computed_have_memory_of_their_own():
    first, second = (Tensor.full((3, 5), 7.25).realize() for _ in range(2))

    assert storage_of(first.uop) is not storage_of(second.uop)


def test_a_warm_realization_makes_few_python_calls():
    x = Tensor(np.ones((4, 4), np.float32)).realize()

    def line():
        return (x @ x.T + 1.0).relu()

    line().realize()
    pending = line()
    calls = count_calls(pending.realize)

    assert calls <= 85  # of them 12 look for variables, if there are any


def count_calls(function):
    """The number of Python functions entered while a function runs."""
    entered = 0

    def count(frame, event, argument):
        nonlocal entered
        entered += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return entered


SCRIPT = """
import sys, numpy as np
from tinytensor import Tensor
x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
print((x @ x.T + 1.0).sum().item())
print(sorted(name for name in sys.modules if name.startswith("tinytensor.codegen")))
"""


def test_a_fresh_process_skips_lowering_when_the_cache_is_warm(tmp_path):
    environment = {**os.environ, "TT_CACHE_DIR": str(tmp_path), "TT_VERIFY": "0"}
    command = [sys.executable, "-c", SCRIPT]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]

    first, second = (run.stdout.splitlines() for run in runs)

    assert first[0] == second[0] == "1143.0"
    assert "tinytensor.codegen.lower" in first[1]
    assert second[1] == "[]"


def test_a_constant_that_was_realized_stays_a_constant_elsewhere():
    kept = Tensor(0.0).realize()

    padded = Tensor([1.0, 2.0]).pad((1, 0))

    assert padded.tolist() == [0.0, 1.0, 2.0]
    assert kept.item() == 0.0
