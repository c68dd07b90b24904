"""Claims about graphs of launches that only a GPU can confirm: they give the bits of launches."""

import gc

import numpy as np
import pytest

import tinytensor as tt
from tinytensor import Device, Tensor, config, dtypes, jit, nn, optim, realize
from tinytensor.runtime.cuda import graph

pytestmark = pytest.mark.gpu

CALLS = 9


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch):
    monkeypatch.setattr(graph, "runs_before", lambda launches: 2)
    with config(device="CUDA"):
        yield


def normal(rng, dtype, *shape):
    return Tensor(rng.standard_normal(shape).astype(np.float32)).cast(dtype).realize()


def chain(rng, dtype, rows, width):
    """Products, row kernels and pointwise work, each reading the one before."""
    weights = [normal(rng, dtype, width, width) for _ in range(4)]

    def run(x):
        for weight in weights:
            x = ((x @ weight).relu() * 0.05 + x).softmax(1) * 16
        return x, x.sum()

    return run, [(normal(rng, dtype, rows, width),) for _ in range(CALLS)]


def training(rng, width):
    """A step of AdamW, whose kernels of many instances and split sums write in place."""
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
    with tt.no_grad():
        for each in model.parameters():
            each.copy_(normal(rng, dtypes.float32, *each.shape) * 0.1)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def run(x):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, model[0].weight.detach() * 1

    return run, [(normal(rng, dtypes.float32, 64, width),) for _ in range(CALLS)]


def pointwise(rng):
    """One launch."""
    return lambda x: ((x * 2).exp(),), [(normal(rng, dtypes.float32, 99),) for _ in range(CALLS)]


CASES = {
    "floats": lambda rng: chain(rng, dtypes.float32, 48, 160),
    "halves by the copy engine": lambda rng: chain(rng, dtypes.float16, 256, 512),
    "few rows, split sums": lambda rng: chain(rng, dtypes.bfloat16, 8, 2048),
    "one launch": pointwise,
    "training": lambda rng: training(rng, 96),
}


def results(case, seed):
    """The bytes of all results, kept until the last call; and how the kernels started at last."""
    realize._SCHEDULES.clear()
    run, inputs = CASES[case](np.random.default_rng(seed))
    call = jit(run)
    kept = [each for given in inputs for each in call(*given)]
    found = [each.detach().float().numpy().tobytes() for each in kept]
    return found, call.programs()[-1].launched


@pytest.mark.parametrize(
    ("case", "has_compiler"),
    [(case, has) for case in CASES for has in (True, False) if has or case != "one launch"],
)
def test_a_graph_gives_the_bits_of_its_launches(monkeypatch, seed, case, has_compiler):
    if not has_compiler:
        monkeypatch.setitem(vars(Device["CUDA"]), "runner", None)
    with monkeypatch.context() as patch:
        patch.setattr(graph, "runs_before", lambda launches: 2 * CALLS)
        wanted, plain = results(case, seed)

    found, joined = results(case, seed)

    assert plain.split()[1].startswith("launch")
    assert joined == f"{plain}, as one CUDA graph"
    assert found == wanted


def test_another_program_between_may_move_scratch_memory(seed):
    rng = np.random.default_rng(seed)
    small, inputs = chain(rng, dtypes.bfloat16, 8, 2048)
    large, others = chain(rng, dtypes.bfloat16, 24, 4096)
    first, second = jit(small), jit(large)
    wanted = [small(x)[0].float().numpy() for (x,) in inputs]

    for number, (x,) in enumerate(inputs):
        found = first(x)[0].float().numpy()
        if number == 5:
            second(*others[0])
        assert (found == wanted[number]).all()


def test_a_function_that_goes_takes_its_graphs_with_it(monkeypatch, seed):
    realize._SCHEDULES.clear()
    run, inputs = CASES["floats"](np.random.default_rng(seed))
    call = jit(run)
    results_before = [call(*each) for each in inputs]
    api = Device["CUDA"].driver.api
    destroyed = []
    destroy = api.cuGraphExecDestroy
    monkeypatch.setattr(api, "cuGraphExecDestroy", lambda g: (destroyed.append(g), destroy(g))[1])

    realize._SCHEDULES.clear()
    del call, run
    gc.collect()

    assert destroyed
    assert all(np.isfinite(each.numpy()).all() for pair in results_before for each in pair)
