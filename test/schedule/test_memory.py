"""Values lie where no other one lies at the time; outputs take over what dies, and only that."""

import itertools
import random
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from tinytensor import Tensor, config, dtypes
from tinytensor.ops.attrs import ParamAttrs
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.kernel import Kernel, Param
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import open_ranges
from tinytensor.ops.uop import UOp, below_views, buffer, by_number, make_range, nbytes_of, walk
from tinytensor.schedule.kernels import KernelCall
from tinytensor.schedule.lower_views import ZERO
from tinytensor.schedule.memory import assign_memory
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.schedule.take_over import may_take, merge_params
from tinytensor.target import CPU_AVX512

OPTIONS = Options(3, True, False)


def value(elements):
    return buffer(dtypes.float32, (elements,), "CPU")


def call(writes, reads):
    """A kernel that writes and reads some nodes, and cannot run in any operand's memory."""
    params = [Param(each.dtype, each.shape[0], each in writes) for each in (*writes, *reads)]
    return KernelCall(Kernel("k", ZERO, (), tuple(params), None, dtypes.int32), (*writes, *reads))


def random_calls(random, count):
    """Kernels that read some of what was made before; what nobody reads is asked for."""
    made = [value(8)]
    calls = []
    for _ in range(count):
        reads = random.sample(made, min(len(made), random.randint(1, 3)))
        writes = [value(random.choice([2, 16, 17, 64, 100])) for _ in range(random.randint(1, 2))]
        calls.append(call(writes, reads))
        made += writes
    read = {node for each in calls for node in each.nodes[-3:]}
    return calls, [node for node in made[1:] if node not in read] or [made[-1]]


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_values_that_lie_in_memory_together_do_not_overlap(count, seed):
    for round_seed in range(20):
        calls, roots = random_calls(random.Random(seed + round_seed), count)

        assigned = assign_memory(calls, roots, {})

        assert overlaps(calls, roots, assigned) == []


def overlaps(calls, roots, assigned):
    """Pairs of values that are alive at one step and share a byte, or leave their holder."""
    places = {}
    for each, step in zip(calls, assigned.steps, strict=True):
        places.update(zip(each.nodes, step.locations, strict=True))
    made = {node for each in calls for node in each.nodes if node in places}
    first, last = {}, {}
    for number, each in enumerate(calls):
        for node in each.nodes:
            first.setdefault(node, number)
            last[node] = number
    last.update(dict.fromkeys(roots, len(calls)))
    found = []
    for x, y in itertools.combinations(made, 2):
        together = first[x] <= last[y] and first[y] <= last[x]
        a, b = places[x], places[y]
        apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
        if together and a.holder is b.holder and not apart:
            found.append((x, y))
    for node in made:
        holder = places[node].holder
        room = assigned.arena_bytes if holder is None else -(-nbytes_of(holder) // 64) * 64
        if places[node].offset + places[node].nbytes > room:
            found.append((node,))
    return found


def test_a_chain_needs_the_room_of_two_values():
    nodes = [value(64) for _ in range(9)]
    calls = [call([y], [x]) for x, y in itertools.pairwise(nodes)]

    assigned = assign_memory(calls, [nodes[-1]], {})

    assert assigned.arena_bytes == 64 * 4  # the other one lies in the result's own buffer


def test_what_is_asked_for_keeps_its_buffer_while_others_still_run():
    x, y, z, w, v = (value(64) for _ in range(5))
    calls = [call([y], [x]), call([z], [y]), call([w], [z]), call([v], [w])]

    assigned = assign_memory(calls, [y, v], {})

    assert [step.locations[0].holder for step in assigned.steps] == [y, v, None, v]


# Taking over.
def kernels_of(*tensors, options=OPTIONS):
    return schedule([each.uop for each in tensors], CPU_AVX512, options)


def leaf(*shape):
    return Tensor(np.ones(shape, np.float32))


def takers(each):
    """The operands that the first output may take, by their place among the operands."""
    outputs = sum(param.written for param in each.kernel.params)
    operands = range(outputs, len(each.kernel.params))
    return [number - outputs for number in operands if may_take(each.kernel, 0, number)]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x, y: x + y, [0, 1]),
        (lambda x, y: x + y * x, [0, 1]),
        (lambda x, y: x + y.T, [0]),
        (lambda x, y: x.flip(0) + y, [0, 1]),
        (lambda x, y: x + x.T + y, [1]),
        (lambda x, y: x + y[:1], [0, 1]),
        (lambda x, y: x.sum(0) + y[0], []),
        (lambda x, y: x @ y, []),
        (lambda x, y: (x + y).sum(), []),
        (lambda x, y: x > y, []),
        (lambda x, y: (x.reshape(-1) + y.reshape(-1)).reshape(2, 32), [0, 1]),
        (lambda x, y: x.T + y.T, []),
        (lambda x, y: x.softmax(1) * y, [0, 1]),
        (lambda x, y: x.softmax(0) + y.T, [0]),
        (lambda x, y: x - (x + y.T).sum(1, keepdim=True), [0]),
        (lambda x, y: x - x.sum(0) - y, [0, 1]),
        (lambda x, y: x - y.sum(1, keepdim=True), [0, 1]),
        (lambda x, y: x.flip(1).softmax(1), []),
        (lambda x, y: x - x.flip(1).sum(1, keepdim=True), []),
        (lambda x, y: x.reshape(2, 4, 8).softmax(-1), [0]),
        (lambda x, y: x.reshape(-1).log_softmax(0), [0]),
    ],
)
def test_an_operand_is_taken_only_when_each_element_is_read_where_it_is_written(make, expected):
    x, y = leaf(8, 8), leaf(8, 8)
    (each,) = kernels_of(make(x, y))

    found = takers(each)

    assert found == expected


def test_any_of_several_stores_may_overwrite_what_the_others_need():
    place = make_range(0, 8)
    first, second, operand = (
        UOp(Op.PARAM, dtypes.float32, (), ParamAttrs(number, 8)) for number in range(3)
    )
    load = UOp(Op.LOAD, dtypes.float32, (operand, place))
    values = (load, load + 1.0)
    stores = [
        UOp(Op.STORE, dtypes.void, (each, place, value))
        for each, value in zip((second, first), values, strict=True)
    ]
    params = tuple(Param(dtypes.float32, 8, number < 2) for number in range(3))
    sink = UOp(Op.SINK, dtypes.void, tuple(stores))
    kernel = Kernel("two", sink, (place,), params, None, dtypes.int32)

    found = [may_take(kernel, output, 2) for output in (0, 1)]
    results = []
    for output in (0, 1):
        arrays = [np.zeros(8, np.float32), np.arange(8, dtype=np.float32)]
        run_kernel(merge_params(kernel, {output: 2}), arrays[:: 1 if output else -1])
        results.append([each.tolist() for each in arrays])

    assert found == [True, True]
    assert results == [[[*range(8)], [*range(1, 9)]], [[*range(1, 9)], [*range(8)]]]


def test_a_merged_kernel_computes_the_same_in_place(seed):
    x, y = leaf(8, 8), leaf(8, 8)
    (each,) = kernels_of((x * y).exp() - x)
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 64)).astype(np.float32)
    separate = np.empty(64, np.float32)
    run_kernel(each.kernel, [separate, a, b])

    merged = merge_params(each.kernel, {0: each.nodes.index(x.uop)})
    run_kernel(merged, [a, b])

    assert [param.written for param in merged.params] == [True, False]
    np.testing.assert_array_equal(a, separate)


def exchanged(x):
    """The lesser of every two neighboring rows before the greater, by way of a choice."""
    pairs = x.reshape(4, 2, 8)
    first, second = (pairs[:, half : half + 1].expand(4, 2, 8) for half in range(2))
    is_first = (Tensor.arange(2) == 0).reshape(2, 1)
    return first.minimum(second).where(is_first, first.maximum(second))


@pytest.mark.parametrize("in_one", [exchanged, lambda x: x.flip(0) - x, lambda x: x - x[2:3]])
def test_points_that_read_one_another_run_in_one(in_one, seed):
    x = leaf(8, 8)
    (each,) = kernels_of(in_one(x))
    operand = each.nodes.index(x.uop)
    arrays = [np.random.default_rng(seed).standard_normal(64).astype(np.float32)]
    separate = np.empty(64, np.float32)
    run_kernel(each.kernel, [separate, *arrays])

    merged = merge_params(each.kernel, {0: operand})
    run_kernel(merged, arrays)

    assert may_take(each.kernel, 0, operand)
    assert len(merged.sink.operands) in (2, 8)
    np.testing.assert_array_equal(arrays[0], separate)


@pytest.mark.parametrize("make", [lambda x: x.flip(1) - x, lambda x: x - x[:, 3:4]])
def test_many_points_do_not_run_in_one(make):
    (each,) = kernels_of(make(leaf(8, 17)))

    assert takers(each) == []


def test_points_that_compute_much_do_not_run_in_one():
    def turned(steps):
        x = leaf(16, 8)
        y = x.flip(0)
        for step in range(steps):
            y = (y * x + step).relu()
        (each,) = kernels_of(y)
        return each

    assert takers(turned(4)) == [0]
    assert takers(turned(40)) == []


def test_points_do_not_run_in_one_where_none_of_them_needs_a_param():
    number = Tensor.arange(2).reshape(2, 1)
    is_always = number * number - number != 1  # which no bounds of a number tell
    (each,) = kernels_of(leaf(2, 8).flip(0).where(is_always, leaf(2, 8)))

    opened = open_ranges(each.kernel.sink, each.kernel.ranges[:1])

    assert len(each.kernel.params) == 3
    assert len(by_number(walk((opened,)), Op.PARAM)) == 2
    assert takers(each) == [1]  # what is read as it lies


def test_what_is_read_as_it_lies_is_taken_first():
    x, y = leaf(8, 8), leaf(8, 8)
    (each,) = kernels_of(x.flip(0) + y)
    made = [call([node], [value(8)]) for node in (x.uop, y.uop)]

    (*_, step) = assign_memory([*made, each], [each.nodes[0]], {}).steps

    assert takers(each) == [0, 1]
    assert len(step.kernel.sink.operands) == 1


def test_a_sort_merges_in_the_memory_of_its_result():
    x = leaf(4, 256)
    values, order = x.sort()
    roots = [values.uop, below_views(order.uop)]

    assigned = assign_memory(schedule(roots, CPU_AVX512, OPTIONS), roots, {})

    assert assigned.arena_bytes <= 8 * 256  # of the places that begin as complements


def random_program(random, operands):
    """A value of many elementwise steps, folds and products over square operands."""
    made = list(operands)
    for _ in range(9):
        x, y = random.choice(made), random.choice(made)
        steps = [
            lambda x, y: x + y,
            lambda x, y: x * y - x,
            lambda x, y: (x.T + y).tanh(),
            lambda x, y: x - y.sum(0),
            lambda x, y: x.softmax(1) + y,
            lambda x, y: (x @ y) * 0.01,
            lambda x, y: x.flip(1).abs() + y,
        ]
        made.append(random.choice(steps)(x, y))
    return made[-3:]


@pytest.mark.parametrize("stress", [False, True])
def test_bits_do_not_depend_on_what_is_taken_over(stress, seed, monkeypatch):
    taken = []

    def count(kernel, pairs):
        taken.append(pairs)
        return merge_params(kernel, pairs)

    monkeypatch.setattr("tinytensor.schedule.memory.merge_params", count)
    for round_seed in range(seed, seed + 3):
        with config(fuse=0, stress=stress):
            found = results(round_seed, monkeypatch, may_take)
            expected = results(round_seed, monkeypatch, lambda kernel, output, operand: False)

        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y)
    assert len(taken) > 5, "almost nothing was taken over"


def rows_between_products(random, operands):
    """Rows that are folded and stored between products, which read them at other places."""
    x, y, z = operands
    asked = []
    for columns in (1, 0, 1, 1):
        product = x @ y * 0.1
        steps = [
            lambda p, axis: p.softmax(axis) + z,
            lambda p, axis: p - p.mean(axis, keepdim=True),
            lambda p, axis: (p * z).log_softmax(axis),
        ]
        x = random.choice(steps)(product, columns)
        asked.append(x)
    return asked


@pytest.mark.parametrize("stress", [False, True])
def test_rows_in_place_have_the_bits_of_rows_apart(stress, seed, monkeypatch):
    taken = []

    def count(kernel, pairs):
        taken.append(pairs)
        return merge_params(kernel, pairs)

    monkeypatch.setattr("tinytensor.schedule.memory.merge_params", count)
    with config(fuse=3, stress=stress):
        found = results(seed, monkeypatch, may_take, rows_between_products)
        expected = results(seed, monkeypatch, lambda *_: False, rows_between_products)

    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)
    assert len(taken) >= 3, "almost no row was computed in place"


def results(seed, monkeypatch, rule, program=random_program):
    monkeypatch.setattr("tinytensor.realize._SCHEDULES", OrderedDict())
    monkeypatch.setattr("tinytensor.schedule.memory.may_take", rule)
    numbers = np.random.default_rng(seed).standard_normal((3, 24, 24)).astype(np.float32)
    asked = program(random.Random(seed), [Tensor(each) for each in numbers])
    asked[0].realize(*asked[1:])
    return [each.numpy() for each in asked]


def test_a_softmax_lies_where_its_exponentials_lay():
    x = leaf(256, 512)
    calls = kernels_of(x.tanh().softmax(1), options=replace(OPTIONS, fuse=1))  # both are stored

    assigned = assign_memory(calls, [calls[-1].nodes[0]], {})

    assert assigned.arena_bytes < 2 * 256 * 512 * 4
    decisions = [each for step in assigned.steps for each in step.kernel.decisions]
    told = [f"{each.subject}: {each.reason}" for each in decisions if each.kind == "reuse"]
    assert told[-1] == (
        "div f32[256,512]: it is computed in the memory of the operand exp f32[256,512], which "
        "nobody reads after it."
    )


def test_what_is_made_of_counting_alone_is_not_kept_between_kernels():
    values = Tensor(np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32))

    calls = kernels_of(*values.sort(-1), options=replace(OPTIONS, verify=False))

    made = [nbytes_of(node) for each in calls for node in each.nodes]
    assert max(made) <= 64 * 1024 * 8  # a pair of an element and where it was
