"""Claims about graphs of launches that need no GPU: what they ask a stand-in of the driver for."""

import gc
from dataclasses import replace

import pytest
from runtime.cuda.fake_driver import OTHER_CONTEXT, Result
from runtime.cuda.programs import (
    add_program,
    bulk_program,
    instanced_program,
    tensor_map,
    two_launch_program,
)

from tinytensor.errors import DeviceError
from tinytensor.ops.text import show
from tinytensor.ops.uop import make_variable
from tinytensor.runtime.cuda import device as cuda_device
from tinytensor.runtime.cuda.graph import LaunchGraph, runs_before
from tinytensor.runtime.device import Step


@pytest.fixture(params=["C", "Python"], autouse=True)
def language(request, monkeypatch):
    """What replaces addresses."""
    if request.param == "Python":
        monkeypatch.setattr(cuda_device.CudaDevice, "runner", None)


PLAIN_RUNS = runs_before(2)  # more launches become a graph earlier
X, MIDDLE, OUT = 0x10000, 0x20000, 0x30000
KIB = 1024


def step(device, program, places, scalars=(), extents=()):
    (work,) = device.compile([program])
    return Step(work, places, (), scalars, extents)


def add_twice(device, x=5, middle=7, out=9):
    """Base x to somewhere in base middle, and from there to base out."""
    first = step(device, add_program(1), ((middle, KIB), (x, 0)))
    second = step(device, add_program(2), ((out, 0), (middle, KIB)))
    return [first, second]


class Runs:
    """Starts steps again and again, and tells what each run made the driver launch."""

    def __init__(self, device, fake, steps):
        (self.start,) = device.starts(steps)
        self.fake = fake

    def __call__(self, *bases):
        before = len(self.fake.launches)
        self.start.launcher.start(*bases)
        return [launch.values for launch in self.fake.launches[before:]]


def of_two(x, middle, out):
    return [[middle + KIB, x], [out, middle + KIB]]


def test_bases_are_asked_for_in_order_and_once(device, fake):
    runs = Runs(device, fake, add_twice(device))

    assert runs.start.places == ((5, 0), (7, 0), (9, 0))
    assert runs.start.launcher.workspace is None


def test_launches_that_come_back_become_a_graph(device, fake):
    runs = Runs(device, fake, add_twice(device))
    told, graphs = [], []

    for _ in range(PLAIN_RUNS + 2):
        assert runs(X, MIDDLE, OUT) == of_two(X, MIDDLE, OUT)
        told.append(runs.start.launcher.told())
        graphs.append(fake.graph_launches)

    assert graphs == [0] * PLAIN_RUNS + [1, 2]
    assert told == ["2 launches"] * PLAIN_RUNS + ["2 launches, as one CUDA graph"] * 2


@pytest.mark.parametrize(
    ("language", "told"),
    [
        ("C", "1 launch, as one CUDA graph"),
        ("Python", "1 launch, no CUDA graph: without a C compiler one launch takes no longer"),
    ],
    indirect=["language"],
)
def test_a_single_launch_becomes_a_graph_when_it_comes_very_often(device, fake, told):
    runs = Runs(device, fake, [step(device, add_program(1), ((0, 0), (1, 0)))])
    for _ in range(runs_before(1)):
        runs(OUT, X)
    before = runs.start.launcher.told()

    found = [runs(OUT + at * KIB, X) for at in (0, 1, 0)]

    assert found == [[[OUT + at * KIB, X]] for at in (0, 1, 0)]
    assert before == "1 launch"
    assert runs.start.launcher.told() == told


def test_a_single_launch_with_tensor_maps_is_no_graph(device):
    (start,) = device.starts([step(device, bulk_program(tensor_map(64)), ((0, 0), (1, 0)))])

    assert start.launcher.told is None


def test_only_the_nodes_whose_addresses_moved_are_replaced(device, fake):
    runs = Runs(device, fake, add_twice(device))
    for _ in range(PLAIN_RUNS + 1):
        runs(X, MIDDLE, OUT)

    found = [runs(X, MIDDLE, OUT + at) for at in (KIB, 2 * KIB)]

    assert found == [of_two(X, MIDDLE, OUT + at) for at in (KIB, 2 * KIB)]
    assert fake.replaced_nodes == [1, 1]
    assert len(fake.graphs) == 1


def test_whatever_has_moved_each_run_has_its_own_addresses(device, fake):
    runs = Runs(device, fake, add_twice(device))
    sets = [
        (X + at % 2 * KIB, MIDDLE + at % 3 * KIB, OUT + at % 5 * KIB)
        for at in range(PLAIN_RUNS + 40)
    ]

    for bases in sets:
        assert runs(*bases) == of_two(*bases)


def test_what_stays_is_not_replaced(device, fake):
    runs = Runs(device, fake, add_twice(device))
    for _ in range(PLAIN_RUNS + 3):
        runs(X, MIDDLE, OUT)

    assert fake.replaced_nodes == []
    assert len(fake.graphs) == 1


def test_scratch_memory_comes_last_and_may_move(device, fake):
    both = step(device, two_launch_program(), ((0, 0), (1, 0)))
    runs = Runs(device, fake, [both])
    for _ in range(PLAIN_RUNS + 2):
        runs(OUT, X)
    before = device.workspace_address(1)
    device.workspace_address(1 << 20)

    found = runs(OUT, X)

    moved = device.workspace_address(1)
    assert moved != before
    assert found == [[OUT, X, moved]] * 2


def test_each_table_of_instances_is_a_node(device, fake):
    extents = tuple([1 + 40 * number for number in range(150)])
    places = tuple([(0, 4 * KIB * number) for number in range(300)])
    steps = [step(device, instanced_program(), places, extents=extents), *add_twice(device)]
    runs = Runs(device, fake, steps)
    wanted, grids = [], []
    for at in range(PLAIN_RUNS + 3):
        wanted.append(runs(at // PLAIN_RUNS * X, X, MIDDLE, OUT))
        grids.append([launch.grid for launch in fake.launches[-4:]])

    assert [each[0][0] for each in wanted] == [127] * len(wanted)
    assert [each[1][0] for each in wanted] == [23] * len(wanted)
    for at, (first, second, *others) in enumerate(wanted):
        addresses = [at // PLAIN_RUNS * X + offset for _, offset in places]
        assert first[3:5] == addresses[:2]
        assert first[3 + 4 * 126 : 5 + 4 * 126] == addresses[252:254]
        assert second[3:5] == addresses[254:256]
        assert others == of_two(X, MIDDLE, OUT)
    assert grids == [grids[0]] * len(grids)
    assert len(fake.graphs[0].nodes) == 4


def test_a_tensor_map_is_that_of_the_address(device, fake):
    bulk = step(device, bulk_program(tensor_map(64)), ((0, 0), (1, 0)))
    runs = Runs(device, fake, [bulk, *add_twice(device)])

    for at in range(PLAIN_RUNS + 4):
        source = X + at // 2 * KIB
        values = runs(OUT, source, X, MIDDLE, OUT)[0]
        (encoded,) = [n for n, each in enumerate(fake.tensor_maps, 1) if each[2] == source]
        assert values == [OUT, source, encoded]


def test_scalars_and_the_grid_they_decide_stay_those_of_the_step(device, fake):
    shape = replace(add_program(1).launches[0], across=show(make_variable(0, 0, 1000)))
    program = replace(add_program(1), launches=(shape,), scalars="q")
    steps = [step(device, program, ((0, 0), (1, 0)), (count,)) for count in (3, 5)]
    runs = Runs(device, fake, steps)

    for at in range(PLAIN_RUNS + 3):
        runs(OUT, X + at * KIB)

    assert [launch.grid for launch in fake.launches] == [(3, 1, 1), (5, 1, 1)] * (PLAIN_RUNS + 3)


def test_an_entry_that_waits_itself_starts_early(device, fake):
    plain = add_program(1)
    early = replace(plain, launches=(replace(plain.launches[0], waits_itself=True),))
    places = ((0, 0), (1, 0))
    runs = Runs(device, fake, [step(device, each, places) for each in (early, early, plain)])
    for _ in range(PLAIN_RUNS + 1):
        runs(OUT, X)

    assert fake.graphs[0].edges == [(0, 1, True), (1, 2, False)]


@pytest.mark.parametrize("function", ["cuGraphCreate", "cuGraphInstantiate"])
def test_without_memory_for_a_graph_launches_stay_launches(device, fake, function):
    runs = Runs(device, fake, add_twice(device))
    fake.failures[function] = Result.CUDA_ERROR_OUT_OF_MEMORY
    found = [runs(X, MIDDLE, OUT + at * KIB) for at in range(PLAIN_RUNS + 3)]
    fake.failures.clear()
    found.append(runs(X, MIDDLE, OUT))

    assert found[:-1] == [of_two(X, MIDDLE, OUT + at * KIB) for at in range(PLAIN_RUNS + 3)]
    assert found[-1] == of_two(X, MIDDLE, OUT)
    assert fake.graph_launches == 0
    assert runs.start.launcher.told() == (
        f"2 launches, no CUDA graph: cuda: {function} failed: CUDA_ERROR_OUT_OF_MEMORY (in words); "
        "other programs must leave it some memory."
    )


@pytest.mark.parametrize("function", ["cuGraphExecKernelNodeSetParams", "cuGraphLaunch"])
def test_where_a_graph_does_not_start_launches_do(device, fake, function):
    runs = Runs(device, fake, add_twice(device))
    for _ in range(PLAIN_RUNS + 1):
        runs(X, MIDDLE, OUT)
    fake.failures[function] = Result.CUDA_ERROR_INVALID_VALUE

    found = [runs(X, MIDDLE, OUT + at * KIB) for at in (1, 1, 2)]

    assert found == [of_two(X, MIDDLE, OUT + at * KIB) for at in (1, 1, 2)]
    assert "no CUDA graph" in runs.start.launcher.told()
    assert "CUDA_ERROR_INVALID_VALUE" in runs.start.launcher.told()


def test_what_neither_a_graph_nor_launches_can_start_raises(device, fake):
    runs = Runs(device, fake, add_twice(device))
    for _ in range(PLAIN_RUNS + 1):
        runs(X, MIDDLE, OUT)
    fake.failures["cuGraphLaunch"] = Result.CUDA_ERROR_LAUNCH_FAILED
    fake.launch_status = Result.CUDA_ERROR_LAUNCH_FAILED

    with pytest.raises(
        DeviceError,
        match=r"^cuda: the launch of add failed: CUDA_ERROR_LAUNCH_FAILED \(in words\); "
        r"the process must be started again, its GPU state is lost\.$",
    ):
        runs(X, MIDDLE, OUT)


def test_an_interrupt_while_nodes_are_replaced_leaves_nothing_half_done(device, fake, monkeypatch):
    monkeypatch.setattr(cuda_device.CudaDevice, "runner", None)  # nothing interrupts C
    runs = Runs(device, fake, add_twice(device))
    for _ in range(PLAIN_RUNS + 1):
        runs(X, MIDDLE, OUT)
    replace_node = fake.cuGraphExecKernelNodeSetParams

    def interrupt(graph, node, params):
        if node == 1:
            raise KeyboardInterrupt
        return replace_node(graph, node, params)

    monkeypatch.setattr(fake, "cuGraphExecKernelNodeSetParams", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        runs(X + KIB, MIDDLE + KIB, OUT + KIB)
    monkeypatch.undo()

    for at in (0, 1, 0, 2):
        bases = (X + at * KIB, MIDDLE, OUT + at * KIB)
        assert runs(*bases) == of_two(*bases)


def test_graphs_go_with_what_starts_them(device, fake):
    runs = Runs(device, fake, add_twice(device))
    for _ in range(PLAIN_RUNS + 1):
        runs(X, MIDDLE, OUT)

    del runs
    gc.collect()

    assert len(fake.destroyed) == 2  # the one that runs, and the one that it was made of


def test_a_forked_process_leaves_the_graphs_to_its_parent(device, fake):
    runs = Runs(device, fake, add_twice(device))
    for _ in range(PLAIN_RUNS + 1):
        runs(X, MIDDLE, OUT)
    device.context.forked_from = 1

    with pytest.raises(DeviceError, match="a forked process cannot use its parent's GPU"):
        runs(X, MIDDLE, OUT)
    del runs
    gc.collect()

    assert fake.destroyed == []


def test_another_librarys_context_is_current_again(device, fake):
    runs = Runs(device, fake, add_twice(device))

    for _ in range(PLAIN_RUNS + 2):
        runs(X, MIDDLE, OUT)

    assert fake.contexts == [OTHER_CONTEXT]


@pytest.mark.parametrize("language", ["C"], indirect=True)
def test_the_runner_refuses_what_are_no_addresses(device, fake):
    graph = LaunchGraph(device, add_twice(device, 0, 1, 2), (X, MIDDLE, OUT))

    with pytest.raises(TypeError, match=r"^cuda: wrong number of addresses\.$"):
        graph.start((X, MIDDLE))
    with pytest.raises(TypeError):
        graph.start(("64", MIDDLE, OUT))
