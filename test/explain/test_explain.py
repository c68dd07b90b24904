"""What an explanation tells: kernels and who reads them, reasons, numbers, memory, compilation."""

from dataclasses import replace

import numpy as np
import pytest

from tinytensor import Tensor, autograd, dtypes, explain, jit, manual_seed, nn, optim, profile
from tinytensor.explain.table import (
    COLUMNS,
    details_of,
    facts_of,
    groups_of,
    kernel_lines,
    micros,
    reasons_of,
    table_lines,
)
from tinytensor.nn.functional import cross_entropy
from tinytensor.ops.kernel import Decision
from tinytensor.ops.uop import const
from tinytensor.profile import BUILD, Profile
from tinytensor.runtime.device import Device
from tinytensor.target import ZEN5, Rates
from tinytensor.timing import Stage


def ones(*shape, **options):
    return Tensor(np.ones(shape, np.float32), **options).realize()


def constant(number):
    return const(dtypes.int32, number)


def two_kernels(x, weight, bias=0.5):
    """A product with an epilogue, then the rows' softmax."""
    return (x @ weight + bias).softmax(-1)


@pytest.fixture(scope="module")
def found():
    return explain(two_kernels, ones(6, 8), ones(8, 10), bias=0.25, repeats=2)


def test_kernels_are_listed_in_order_with_who_reads_whom(found):
    assert found.name == "two_kernels"
    assert found.device == "CPU"
    assert [each.kernel.name for each in found.kernels] == [
        "contract_f32_6x10x8",
        "max_add_f32_6x10x10x10",
    ]
    first, second = found.kernels
    assert (first.reads, first.readers, second.reads, second.readers) == ((), (2,), (1,), ())
    assert first.inputs == "f32[6,8], f32[8,10]"
    assert second.inputs == "f32[6,10] of kernel 1"
    assert first.outputs == ("add f32[6,10]",)
    assert second.outputs == ("div f32[6,10]",)


def test_work_and_its_price_are_counted_from_the_graph(found):
    (first, _), rates = found.kernels, Device["CPU"].target.rates

    # 480 multiply-adds and 60 additions; 48 + 80 numbers are read and 60 written, all in cache.
    assert (first.work.flops, first.work.bytes_moved) == (2 * 480 + 60, 4 * (48 + 80 + 60))
    assert first.intensity == 1020 / 752
    assert first.launch_us == rates.launch_seconds * 1e6
    assert first.load.memory == pytest.approx(752 / rates.cache)
    assert first.load.arithmetic >= 1020 / rates.flops
    work_us = max(first.load.memory, first.load.arithmetic) * 1e6
    assert first.predicted_us == pytest.approx(first.launch_us + work_us)
    assert first.limit == "launch"


def test_every_kernel_is_measured(found):
    assert len(found.warm) == 2
    assert all(each.time_us > 0 for each in found.kernels)
    first = found.kernels[0]
    assert first.roof_share == pytest.approx(first.load.seconds * 1e6 / first.time_us)
    assert found.device_us == sum(each.time_us for each in found.kernels)
    assert found.call_us == min(found.plain_seconds) * 1e6


def test_the_times_of_one_watched_call_add_up_to_it(found):
    told = details_of(found)["watched"]

    assert found.shortest is min(found.warm, key=lambda each: each.seconds)
    stages = {each.name: each.time_us for each in found.shortest.by_stage()}
    assert stages["kernels on the host"] == pytest.approx(found.device_us)
    assert sum(stages.values()) == pytest.approx(found.shortest.seconds * 1e6)
    whole, parts = told.split(" = ")
    assert whole == micros(found.shortest.seconds * 1e6)
    assert parts.rpartition(" + ")[2].startswith("others ")


def test_what_a_share_of_the_roof_is_of_is_told():
    speeds = {"read": 5e10, "write": 2.5e10, "cache": 8e10, "flops": 1.05e11}
    rates = Rates(**speeds, functions=1.0, launch_seconds=1e-6)
    empty = replace(explain(lambda: None, repeats=1), rates=rates)

    assert details_of(empty)["roof"] == (
        "100% is 105 Gflop/s, 80 GB/s in cache, 50 GB/s read and 25 GB/s written in memory, as "
        "tinytensor/target.py has it from an idle machine of the kind; a faster one reaches more"
    )
    halves = details_of(replace(empty, rates=replace(rates, half_flops=7.9e14)))["roof"]
    assert halves.startswith("100% is 105 Gflop/s, 790 Tflop/s of halves, 80 GB/s in cache, ")


@pytest.mark.parametrize(
    ("compiled", "words"),
    [
        (2, "2 programs in the first call, for 2 kernels: no cache had any"),
        (1, "1 program in the first call, for 2 kernels: 1 was in a cache"),
        (0, "0 programs in the first call, for 2 kernels: 2 were in a cache"),
    ],
)
def test_programs_that_were_compiled_are_told_beside_those_that_were_not(found, compiled, words):
    others = [each for each in found.cold.stages if each.name != BUILD]
    builds = [Stage(BUILD, 0.0, 1.0, 1)] * compiled

    cold = replace(found.cold, stages=[*others, *builds])

    assert details_of(replace(found, cold=cold))["compiled"] == words


def test_what_the_caches_of_a_later_call_had_is_told(found):
    assert details_of(found)["its caches"] == "plans: 1 of 1 found"


def test_candidates_are_named_with_what_they_lost_by(found):
    first = replace(found.kernels[0], candidates=("8 x 32", "12 x 32", "8 x 48"))
    tuned = (*first.decisions, Decision("tune", "12 x 32", "1 us, 2 times as fast."))

    assert facts_of(first)["candidates"] == (
        "8 x 32 taken; behind by estimate, not measured: 12 x 32; 8 x 48"
    )
    assert facts_of(replace(first, decisions=tuned))["candidates"] == (
        "12 x 32 taken; slower when measured (see tune): 8 x 32; 8 x 48"
    )
    assert "candidates" not in facts_of(replace(first, candidates=("8 x 32",)))
    several = replace(first, candidates=tuple("abcdefghijk"))
    assert facts_of(several)["candidates"] == (
        "a taken; behind by estimate, not measured: b; c; d; e; f; g; h; i; 2 more"
    )


def test_every_form_is_kept_as_text(found):
    sources = found.kernels[1].sources

    assert sources.tensor.startswith("graph\n%0 = BUFFER float32 serial=")
    assert "REDUCE float32" in sources.tensor
    assert "MUL" not in sources.tensor  # what the first kernel computes is a leaf here
    assert sources.indexed.startswith("kernel max_add_f32_6x10x10x10 int32")
    assert sources.linear.startswith("linear max_add_f32_6x10x10x10 ")
    assert "max_add_f32_6x10x10x10(" in sources.source


def test_reasons_come_with_the_kernels_they_are_about(found):
    reasons = {each.decision.subject: each for each in reasons_of(found)}

    assert reasons["add f32[6,10]"].kernels == (1,)
    assert (
        "it comes from a fold, and no fold is computed twice"
        in reasons["add f32[6,10]"].decision.reason
    )
    kinds = {decision.kind for each in found.kernels for decision in each.decisions}
    assert {"contract", "fuse", "plan", "store"} <= kinds


def test_what_is_not_a_contraction_has_the_obstacle_among_its_reasons():
    x = ones(5, 6)
    found = explain(lambda: (x * x).sum(1), repeats=1)

    (reason,) = [each for each in reasons_of(found) if each.decision.subject == "contraction"]
    assert reason.decision.kind == "decline"
    assert reason.decision.reason.endswith("a batch of dot products.")


def test_launches_of_one_kernel_are_one_group():
    a, b, c = ones(7, 7), ones(7, 7), ones(7, 9)
    found = explain(lambda: (a @ a, b @ b, c + 1.0), repeats=1)

    groups = groups_of(found)

    counts = {group.launches[0].kernel.name: len(group.launches) for group in groups}
    assert counts == {"contract_f32_7x7x7": 2, "pointwise_f32_7x9": 1}
    assert sum(group.share for group in groups) == pytest.approx(1)
    assert [each.time_us for each in groups] == sorted([each.time_us for each in groups])[::-1]


def test_the_table_names_all_that_matters(found):
    lines = str(found).splitlines()

    assert lines == list(table_lines(found))
    assert lines[0].startswith("two_kernels on CPU: launches 2 of 2 kernels, in kernels ")
    assert tuple(lines[2].split()) == COLUMNS
    assert {line.split()[4] for line in lines[3:5]} == {each.kernel.name for each in found.kernels}
    assert "not fused, and why; first what the longest kernels leave:" in lines
    names = ["roof", "memory", "arena", "saved", "a call", "watched", "its caches"]
    names += ["first call", "compiled", "break-even"]
    assert [line[:12].strip() for line in lines[-10:]] == names


def test_the_table_leaves_out_what_hardly_takes_time(found):
    first = found.kernels[0]
    many = [
        replace(
            first,
            kernel=replace(first.kernel, sink=constant(number)),
            time_us=1e-3 if number else 1.0,
            decisions=(Decision("store", f"add f32[{number}]", "read twice."),),
        )
        for number in range(25)
    ]

    lines = str(replace(found, kernels=tuple(many))).splitlines()

    assert lines[4] == "   2.3%  24 more kernels"
    assert lines.count("  5 more reasons") == 1
    assert sum("read twice." in line for line in lines) == 20


def test_a_kernel_is_told_by_itself(found):
    first = found.kernels[0]
    lines = str(first).splitlines()

    assert lines == list(kernel_lines(first))
    facts = {line[2:14].strip(): line[14:] for line in lines[1:]}
    assert facts["stores"] == "add f32[6,10]"
    assert facts["reads"] == "f32[6,8], f32[8,10]"
    assert facts["work"] == "1.02 kflop, 752 B, 1.36 flop a byte"
    assert facts["factors"] == "computed on the way in: none"
    assert facts["numerics"].startswith("reassociated; summed in f32")


def test_compilation_pays_after_as_many_calls_as_its_time_takes(found):
    # Scheduling and planning took 20 + 230 us; one kernel per op would take 100 us longer.
    seconds = {"schedule": 20e-6, "lower: plan": 230e-6, "lower: import": 9.0, "realize": 5.0}
    stages = [Stage(name, 0.0, each, thread) for thread, (name, each) in enumerate(seconds.items())]
    cold = Profile(0.0, 20.0, [], stages)
    slow = replace(found, cold=cold, unfused_us=found.predicted_us + 100.0)

    assert slow.compile_us == pytest.approx(250)
    assert slow.break_even_calls == 3
    assert details_of(slow)["break-even"].startswith("after 3 calls: one kernel per op would take ")


def test_compilation_never_pays_where_fusing_gains_nothing(found):
    equal = replace(found, unfused_us=found.predicted_us)

    assert equal.break_even_calls is None
    assert details_of(equal)["break-even"].startswith("never: one kernel per op would take ")


def test_one_kernel_per_op_is_predicted_from_its_own_schedule():
    x, launch_us = ones(4), Device["CPU"].target.rates.launch_seconds * 1e6

    found = explain(lambda: x.exp() * 2.0 + 1.0, repeats=1)

    assert len(found.kernels) == 1
    # Three ops on 16 bytes, each of which takes nanoseconds beside its launch.
    assert 3 * launch_us < found.unfused_us < 3.1 * launch_us
    assert launch_us < found.predicted_us < 1.1 * launch_us


class Network(nn.Module):
    """Two layers and a loss."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 16), nn.Linear(16, 5)

    def forward(self, x):
        return self.second(self.first(x).relu())


def start_training():
    """Return a network and a function that takes a step of its training."""
    manual_seed(7)
    network = Network()
    optimizer = optim.AdamW(network.parameters(), lr=0.01)
    x = Tensor(np.random.default_rng(1).standard_normal((9, 12)).astype(np.float32)).realize()
    classes = Tensor(np.arange(9) % 5).realize()

    def step():
        loss = cross_entropy(network(x), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return network, step


def test_what_the_first_call_alone_computes_is_no_part_of_a_call():
    x, tables = ones(5, 6), []

    def look_up():
        if not tables:
            tables.append((ones(6, 7) + 1.5).realize())
        return x @ tables[0]

    found = explain(look_up, repeats=2)

    assert len(found.cold.kernels) > len(found.kernels)
    assert [each.kernel.name for each in found.kernels] == ["contract_f32_5x7x6"]
    assert found.kernels[0].time_us > 0


def test_explaining_a_step_is_taking_it_as_often_as_documented():
    network, step = start_training()
    explain(step, repeats=3)
    other, again = start_training()
    for _ in range(2 * 3 + 2):
        again().realize()

    pairs = zip(network.parameters(), other.parameters(), strict=True)
    assert all(np.array_equal(a.detach().numpy(), b.detach().numpy()) for a, b in pairs)


def test_watching_keeps_no_value_alive_that_a_step_replaces():
    _, step = start_training()
    device = Device["CPU"]

    def peak_of_a_step():
        device.reset_peak()
        step().detach().numpy()
        return device.memory().peak

    plain = [peak_of_a_step() for _ in range(3)]
    with profile():
        watched = peak_of_a_step()

    assert watched == plain[-1]


def test_what_the_forward_saves_for_the_backward_is_told(monkeypatch):
    device = Device["CPU"]  # what is saved depends on rates
    monkeypatch.setattr(device, "target", replace(device.target, rates=ZEN5))
    network, _ = start_training()
    x, weights = ones(9, 12), list(network.parameters())

    def gradients():
        loss = (network(x) ** 2).mean()
        return loss, autograd.grad(loss, weights)

    found = explain(gradients, repeats=1)

    # The clipped rows are a factor of the second weight's gradient, the places where they were
    # clipped part the gradient that goes on: both are computed from the rows as they were. The
    # gradient of the last rows is left with them.
    saved = [("add f32[9,16]", 9 * 16 * 4), ("mul f32[9,5]", 9 * 5 * 4)]
    assert sorted(found.memory.saved) == sorted(saved)
    assert found.memory.saved_bytes == 756
    assert details_of(found)["saved"] == (
        "756 B for the backward: add f32[9,16] x1, mul f32[9,5] x1"
    )


def test_the_memory_of_a_call_is_told():
    x = ones(1000, 250)  # 1 MB

    # Two rows of sums lie between the kernels, 4 kB each, and the result has 1 MB.
    found = explain(lambda: (x / x.sum(1, keepdim=True)) @ ones(250, 250), repeats=1)

    assert found.memory.stored > 0
    assert found.memory.peak >= 1_000_000
    assert found.memory.saved == ()


def test_arguments_are_passed_on_and_results_may_be_nested():
    x = ones(3)
    seen = []

    def nested(a, *, b):
        seen.append(b)
        return {"first": [a + b], "second": (a * b, 7)}

    found = explain(nested, x, b=2.0, repeats=1)

    assert [each.outputs for each in found.kernels] == [("add f32[3]", "mul f32[3]")]
    assert seen == [2.0] * 4


def test_a_function_that_computes_nothing_has_an_explanation():
    found = explain(lambda: None, repeats=1)

    assert found.kernels == ()
    assert str(found).startswith("<lambda> on no device: launches 0 of 0 kernels")
    assert "<svg" in found.to_html()


def test_a_device_without_a_compiler_has_no_linear_form():
    x = ones(3, device="PYTHON")

    (kernel,) = explain(lambda: x + 1.0, repeats=1).kernels

    assert (kernel.sources.linear, kernel.sources.source) == ("", "")
    assert kernel.time_us > 0


def test_at_least_one_run_is_measured():
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
        explain(lambda: None, repeats=0)

    assert str(caught.value) == ("explain: too few runs to measure: repeats=0; must be 1 or more.")


def test_stages_of_the_first_call_are_told(found):
    told = details_of(found)["first call"]

    assert "lower: " in told
    assert " us" in told or " ms" in told


def test_what_a_jitted_function_relies_on_is_told():
    @jit
    def scaled(x, factor):
        return (x * factor).exp()

    scaled(ones(3), 2.0)
    found = explain(scaled, ones(4), 2.0, repeats=2)

    assert [each.kernel.name for each in found.kernels] == ["pointwise_f32_4"]
    assert found.kernels[0].time_us > 0
    assert [len(each.kernels) for each in found.warm] == [1, 1]
    assert found.warm[-1].hit_rate("guards") == 1
    assert any("factor" in each for each in found.guards)
    assert details_of(found)["guards"] == "; ".join(found.guards)
    assert len(found.misses) == 1
    assert "(4,)" in details_of(found)["misses"]
