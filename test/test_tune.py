"""Tuning measures the candidates of a plan, and takes none that is wrong or no faster."""

import json
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from codegen.plans.test_contraction import plain
from codegen.plans.test_cuda_contraction import biased, half
from schedule.reading import kernels_of

from tinytensor import Tensor, config, dtypes, planning, realize, report, tune
from tinytensor.codegen.lower import lower
from tinytensor.codegen.plan import choose, take
from tinytensor.dtype import decode
from tinytensor.errors import CompileError, DeviceError
from tinytensor.ops.kernel import Winner
from tinytensor.program_cache import find_winner, keep_winner, make_program
from tinytensor.runtime.cache import open_cache
from tinytensor.runtime.device import Device
from tinytensor.target import CPU_AVX2, CPU_AVX512, CPU_SSE, SM80, SM90A


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with config(cache_dir=str(tmp_path), device="CPU"):
        yield


def matrices(m, n, k, dtype=np.float32):
    rng = np.random.default_rng(m + n + k)
    return [rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n))]


def product_kernel(m, n, k):
    a, b = matrices(m, n, k)
    return kernels_of(Tensor(a) @ Tensor(b) + 1, target=Device["CPU"].target)[-1]


def timed_as(monkeypatch, *speeds):
    """Let the candidates that are right have these speeds, in their order; 1 for all others."""

    def judged(works, sets, device, seconds):
        given = [*speeds, *[1.0] * len(works)]
        return [tune.Measured(name, 100 / given[at], given[at]) for at, name in enumerate(works)]

    monkeypatch.setattr(tune, "_take_turns", judged)


def plan_lines(call):
    """The decisions of plans that a realization shows."""
    with report.capture() as planned:
        call()
    return [each for one in planned for each in one.plan if each.kind in ("plan", "tune")]


def tuned(kernel):
    """The winner that tuning stores."""
    device = Device["CPU"]
    tune.tune([kernel], device, device.target)
    return find_winner(kernel, device.target, device.model)


# From end to end.
def test_a_winner_is_stored_and_taken_from_then_on_but_not_under_tt_tune_0(monkeypatch):
    timed_as(monkeypatch, 1.0, 1.5)
    a, b = matrices(20, 40, 30)
    kernel = product_kernel(20, 40, 30)
    first, second = [each.name for each in take(kernel, Device["CPU"].target).plan.candidates(
        take(kernel, Device["CPU"].target).facts, Device["CPU"].target)][:2]  # fmt: skip
    results = {}
    lines = {}

    for setting in ("1", "stored", "0"):
        with config(tune=setting):
            lines[setting] = plan_lines(
                lambda: results.update({setting: (Tensor(a) @ Tensor(b) + 1).numpy()})  # noqa: B023
            )

    assert [each.subject for each in lines["1"]] == ["contraction", second]
    assert lines["1"][1].reason.startswith(
        f"66.67 us on {Device['CPU'].model}, 1.500 times as fast as estimated best {first}; "
    )
    assert lines["stored"] == lines["1"]
    assert [each.subject for each in lines["0"]] == ["contraction"]
    for result in results.values():
        np.testing.assert_array_equal(result, a @ b + 1)


def test_all_candidates_of_a_cpu_give_the_same_sums():
    device = Device["CPU"]

    found = tune.measure(product_kernel(20, 40, 1100), device, device.target, 99, 0.1)

    assert len(found) > 1
    assert all(each.speed > 0 and each.time_us > 0 for each in found)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [half(200, 328, 520), biased(520, 200, 1040)], ids=["plain", ""])
def test_all_candidates_of_a_gpu_give_the_same_sums(kernel):
    device = Device["CUDA"]

    found = tune.measure(kernel, device, device.target, 24)

    assert len(found) > 1
    assert all(each.speed > 0 and each.time_us > 0 for each in found)


# Who wins.
@pytest.mark.parametrize(("speeds", "place"), [((1, 0.9), 0), ((1, 1.01), 0), ((1, 1.1, 1.2), 2)])
def test_the_fastest_wins_if_it_is_clearly_faster(speeds, place, monkeypatch):
    timed_as(monkeypatch, *speeds)
    kernel = product_kernel(20, 40, 30)
    taken = take(kernel, Device["CPU"].target)
    names = [each.name for each in taken.plan.candidates(taken.facts, Device["CPU"].target)]

    winner = tuned(kernel)

    assert (winner.plan, winner.version, winner.candidate) == ("contraction", 1, names[place])


def test_a_candidate_with_another_result_never_wins(monkeypatch):
    kernel = product_kernel(20, 40, 30)
    first, second = names_of(kernel)[:2]

    def lower_wrongly(kernel, target, winner):
        made = lower(kernel, target, winner)
        source = made.program.source
        if winner.candidate == second:
            source = source.replace("1.0f", "2.0f")
            assert source != made.program.source
        return replace(made, program=replace(made.program, source=source))

    monkeypatch.setattr(tune, "lower", lower_wrongly)
    timed_as(monkeypatch, 1.0, 1.0)

    winner = tuned(kernel)

    assert winner.candidate == first
    assert f"{second} is wrong" in winner.reason


def names_of(kernel, target=None):
    target = target or Device["CPU"].target
    taken = take(kernel, target)
    return [each.name for each in taken.plan.candidates(taken.facts, target)]


def test_a_candidate_that_does_not_compile_is_left_out(monkeypatch):
    device = Device["CPU"]
    compile_programs = device.compile
    kernel = product_kernel(20, 40, 30)
    last = lower(kernel, device.target, Winner("contraction", 1, names_of(kernel)[-1], "")).program

    def refuse(programs):
        asked = list(programs)
        if last in asked:
            raise CompileError("cpu: too many registers.")
        return compile_programs(asked)

    monkeypatch.setattr(device, "compile", refuse)

    found = tune.measure(kernel, device, device.target, 99)

    assert [each.name for each in found] == names_of(kernel)[:-1]


def test_nothing_is_measured_where_memory_does_not_suffice(monkeypatch):
    device, kernel = Device["CPU"], product_kernel(20, 40, 30)

    def refuse(nbytes):
        raise DeviceError("cpu: no memory.")

    monkeypatch.setattr(device, "allocate", refuse)

    assert tune.measure(kernel, device, device.target, 99) == []


def test_what_was_found_is_said_with_the_fastest_first():
    found = [tune.Measured("a", 10.0, 1.0), tune.Measured("b", 8.0, 1.25)]
    found += [tune.Measured("c", 0.0, 0.0), tune.Measured("d", 20.0, 0.5)]

    assert tune.describe(found, found[1], "H1") == (
        "8 us on H1, 1.250 times as fast as estimated best a; a 10; d 20; c is wrong."
    )
    assert tune.describe(found[:1] + found[2:], found[0], "H1") == (
        "10 us on H1, nothing else is 1.02 times as fast; d 20; c is wrong."
    )


# Whole numbers.
def affine(x):
    return (x * 2 + 1).relu() @ Tensor(np.ones((64, 8), np.float32))


FACTORS = {
    "plain": (lambda x: x @ x.T, True),
    "whole prologue": (affine, True),
    "halves of whole numbers": (lambda x: (x * 0.5) @ x.T, False),
    "exponentials": (lambda x: x.exp() @ x.T, False),
    "products beyond float16": (lambda x: (x.half() * 1500) @ x.half().T, False),
    "integers": (lambda x: (x.int() // 3) @ x.int().T, True),
}


@pytest.mark.parametrize(("made", "is_exact"), FACTORS.values(), ids=FACTORS)
def test_sums_are_exact_where_every_factor_is_a_small_whole_number(made, is_exact):
    kernel = next(each for each in kernels_of(made(Tensor(np.ones((8, 64), np.float32))))
                  if each.contraction)  # fmt: skip

    assert tune.is_exact(kernel) is is_exact


def test_sums_of_too_many_products_are_not_exact():
    assert tune.is_exact(plain(2, 2, 2**22))
    assert not tune.is_exact(plain(2, 2, 2**22 + 1))


@pytest.mark.parametrize("dtype", [
    dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.int8, dtypes.uint8, dtypes.bool,
], ids=lambda each: each.name)  # fmt: skip
def test_inputs_are_whole_numbers_of_the_dtype(dtype):
    stored = tune.whole_numbers(dtype, 100, 0)

    bits = stored.view(f"uint{8 * dtype.itemsize}")
    values = {float(decode(dtype, int(each))) for each in bits}
    least = 0 if dtype in (dtypes.uint8, dtypes.bool) else -2
    assert stored.dtype == dtype.storage_numpy
    assert values == set(range(least, 2 if dtype is dtypes.bool else 3))


# What is stored.
def test_winners_that_say_nothing_of_a_candidate_are_ignored():
    kernel, target = product_kernel(20, 40, 30), Device["CPU"].target
    usual = choose(kernel, target)
    names = names_of(kernel)

    for winner in (
        Winner("contraction", 2, names[1], "of a later version"),
        Winner("hopper", 1, names[1], "of another plan"),
        Winner("contraction", 1, "3 x 3", "unknown"),
    ):
        assert choose(kernel, target, winner) == usual
    assert choose(kernel, target, Winner("contraction", 1, names[1], "found")) != usual


def test_a_winner_belongs_to_one_model_of_device(tmp_path):
    kernel, target = product_kernel(20, 40, 30), Device["CPU"].target
    winner = Winner("contraction", 1, names_of(kernel)[1], "found")

    keep_winner(kernel, target, "one", winner)

    assert find_winner(kernel, target, "one") == winner
    assert find_winner(kernel, target, "other") is None
    assert make_program(kernel, target, False, "one") != make_program(kernel, target, False, "two")
    (file,) = [each for each in tmp_path.glob("*.txt") if b'"found"' in each.read_bytes()]
    open_cache().put(file.name, json.dumps({"plan": "contraction"}).encode())
    assert find_winner(kernel, target, "one") is None


@pytest.mark.parametrize("is_tuned", [False, True])
def test_a_schedule_on_disk_from_before_a_winner_is_made_anew(is_tuned, monkeypatch):
    a, b = matrices(20, 40, 31)
    kernel, device = product_kernel(20, 40, 31), Device["CPU"]

    def result():
        monkeypatch.setattr(realize, "_SCHEDULES", OrderedDict())  # as in a fresh process
        monkeypatch.setattr(planning, "_COMPILED", OrderedDict())
        return (Tensor(a) @ Tensor(b) + 1).numpy()

    with config(verify=False):
        result()
        if is_tuned:
            winner = Winner("contraction", 1, names_of(kernel)[1], "found")
            keep_winner(kernel, device.target, device.model, winner)
        found = result()

    np.testing.assert_array_equal(found, a @ b + 1)
    assert len(planning._COMPILED) == is_tuned


# What is listed.
@pytest.mark.parametrize("target", [CPU_SSE, CPU_AVX2, CPU_AVX512, SM80, SM90A],
                         ids=["sse", "avx2", "avx512", "sm_80", "sm_90a"])  # fmt: skip
@pytest.mark.parametrize("kernel", [plain(300, 700, 1100), half(1000, 1000, 1000)],
                         ids=["float32", "float16"])  # fmt: skip
def test_the_first_candidate_is_the_usual_one_and_names_differ(kernel, target):
    taken = take(kernel, target)
    names = names_of(kernel, target)

    first = choose(kernel, target, Winner(taken.plan.name, 1, names[0], ""))

    assert len(set(names)) == len(names) > 0
    assert first.linears == choose(kernel, target).linears


def test_a_host_s_joined_calls_run_in_order():
    ran = []

    Device["CPU"].join([lambda: ran.append(1), lambda: ran.append(2)])()

    assert ran == [1, 2]
