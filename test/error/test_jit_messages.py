"""What jit says of calls that no program can make again."""

import numpy as np
import pytest

from tinytensor import Generator, Tensor, jit, nn
from tinytensor.errors import TraceError


@pytest.mark.parametrize(
    "read",
    [bool, float, Tensor.item, Tensor.tolist, Tensor.numpy, repr],
    ids=lambda each: each.__name__,
)
def test_a_value_that_is_read_is_named_with_its_line(read):
    @jit
    def choose(x):
        read(x.sum())  # here

    with pytest.raises(TraceError) as caught:
        choose(Tensor([1.0]))

    first, second = str(caught.value).splitlines()
    assert first == (
        "jit: a value is read while the function is traced: shape (); only results may be read. "
        "Return it, or choose with where() or cond()."
    )
    assert second.startswith("read at ")
    assert second.endswith("read(x.sum())  # here")
    assert __file__ in second


def test_an_array_is_no_argument():
    with pytest.raises(TraceError) as caught:
        jit(lambda x: x)(np.zeros(2))

    assert str(caught.value) == (
        "jit: an argument is an array: shape (2,); it must be a Tensor. Use Tensor(array)."
    )


def keep(x):
    KEPT.append(x * 2)


KEPT = []
GONE = nn.Parameter(Tensor([1.0]))
COMPUTED = GONE * 2


def take_seed(x):
    Generator().seed()


def exchange(x):
    GONE.data = Tensor([2.0])


def differentiate_outside(x):
    (COMPUTED * x).sum().backward()


REASONS = {
    "a NumPy array is read, whose values no guard compares": lambda x: x + Tensor(np.ones(1)),
    "a result requires a gradient": lambda x: GONE * x,
    "a seed is taken that nobody can foresee": take_seed,
    "a tensor from outside is made to hold or to require something else": exchange,
    "a gradient would go on to what was computed before the call": differentiate_outside,
    "values move between devices": lambda x: x.to(device="PYTHON") + 1,
    "a value that requires a gradient is written outside of it": lambda x: x.copy_(GONE * x),
}


@pytest.mark.parametrize("reason", REASONS)
def test_why_a_function_runs_at_each_call(reason):
    jitted = jit(REASONS[reason])

    jitted(Tensor([1.0]))

    assert jitted.programs() == []
    name = jitted.__name__
    assert list(jitted.remarks) == [f"jit: {name}: the function runs at each such call: {reason}."]


def test_a_tensor_that_is_kept_is_named_with_its_line():
    jitted = jit(keep)

    jitted(Tensor([1.0]))

    (remark,) = jitted.remarks
    assert remark.startswith(
        "jit: keep: the function runs at each such call: "
        "a tensor that it makes is kept outside of it, made at "
    )
    assert remark.endswith("KEPT.append(x * 2).")
