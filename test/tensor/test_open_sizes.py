"""Sizes known only at launch: one family of kernels serves every value, with its results."""

import numpy as np
import pytest
from tolerance import assert_close

import tinytensor as tt
from tinytensor import Tensor, Variable, mark_dynamic, planning, realize
from tinytensor.errors import ShapeError, ValueOutOfRange
from tinytensor.nn import functional
from tinytensor.ops.op import Op
from tinytensor.ops.size import Size, recorded_claims
from tinytensor.ops.uop import walk

FEATURES = 48
SIZES = (17, 1, 32, 33, 100)
N = Variable("n", 1, 4096)
WEIGHT = (np.arange(FEATURES * 24).reshape(FEATURES, 24) % 7 - 3).astype(np.float32)


def heads(x):
    """(n, 48) -> (1, 4, n, 12), of a Tensor or an array."""
    parts = x.reshape(1, x.shape[0], 4, 12)
    return parts.transpose(1, 2) if isinstance(x, Tensor) else parts.transpose(0, 2, 1, 3)


def weight_gradient(x):
    weight = Tensor(WEIGHT, requires_grad=True)
    (x @ weight).relu().sum().backward()
    return weight.grad


# name: what is computed of x (n, 48), and the same of an array in float64.
EXACT = {
    "elements": (lambda x: x * 2 + 1, lambda x: x * 2 + 1),
    "columns": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "rows": (lambda x: x.sum(1), lambda x: x.sum(1)),
    "product": (lambda x: x @ Tensor(WEIGHT), lambda x: x @ WEIGHT),
    "gram": (lambda x: x @ x.T, lambda x: x @ x.T),
    "inner": (lambda x: x.T @ x, lambda x: x.T @ x),
    "flat": (lambda x: x.reshape(-1) * 3, lambda x: x.reshape(-1) * 3),
    "turned": (lambda x: x.T.reshape(-1) * 3, lambda x: x.T.reshape(-1) * 3),
    "joined": (lambda x: Tensor.cat([x, x + 1], 0), lambda x: np.concatenate([x, x + 1])),
    "beside": (lambda x: Tensor.cat([x, x + 1], 1), lambda x: np.concatenate([x, x + 1], 1)),
    "flipped": (lambda x: x.flip(0), lambda x: x[::-1]),
    "every third": (lambda x: x[::3], lambda x: x[::3]),
    "repeated": (lambda x: x.unsqueeze(0).expand(3, -1, -1).sum(0), lambda x: 3 * x),
    "greatest": (lambda x: x.max(0)[0] + x.argmax(0), lambda x: x.max(0) + x.argmax(0)),
    "counted": (lambda x: Tensor.arange(x.shape[0]) * 2, lambda x: 2 * np.arange(len(x))),
    "triangle": (lambda x: (x @ x.T).tril(), lambda x: np.tril(x @ x.T)),
    "by heads": (lambda x: heads(x).reshape(-1, 12) + 1, lambda x: heads(x).reshape(-1, 12) + 1),
    "times its size": (lambda x: x * x.shape[0], lambda x: x * len(x)),
    "gradient": (weight_gradient, lambda x: x.T @ ((x @ WEIGHT) > 0)),
}
CLOSE = {
    "mean": lambda x: x.mean(0),
    "softmax of rows": lambda x: x.softmax(-1),
    "softmax of columns": lambda x: x.softmax(0),
    "layer norm": lambda x: functional.layer_norm(x, (FEATURES,)),
    "attention": lambda x: functional.scaled_dot_product_attention(*[heads(x)] * 3, is_causal=True),
}


def operand(n):
    """Small integers, so that sums are exact in any order."""
    return (np.arange(n * FEATURES).reshape(n, FEATURES) * 7 % 9 - 4).astype(np.float32)


def families():
    return sum(map(len, planning._FAMILIES.values()))


@pytest.fixture(autouse=True)
def _alone():
    """Families of other tests do not count."""
    planning._FAMILIES.clear()


@pytest.mark.parametrize("name", EXACT)
def test_one_family_computes_exact_results_of_every_size(name, default_device):
    compute, expected = EXACT[name]
    for n in SIZES:
        result = compute(mark_dynamic(Tensor(operand(n)), 0, N))

        wanted = expected(operand(n).astype(np.float64))
        assert result.shape == wanted.shape
        assert result.tolist() == wanted.tolist(), f"{n} rows"
    if default_device == "CPU":
        assert families() == 1


@pytest.mark.parametrize("name", CLOSE)
def test_one_family_computes_functions_of_every_size(name, default_device):
    compute = CLOSE[name]
    for n in SIZES:
        x = Tensor(operand(n))
        result = compute(mark_dynamic(x, 0, N)).numpy()

        assert_close(result, compute(x).uop, {x.uop: operand(n)})
    if default_device == "CPU":
        assert families() == 1


def test_the_python_device_serves_every_size_too():
    for n in SIZES:
        x = mark_dynamic(Tensor(operand(n), device="PYTHON"), 0, N)
        result = (x @ x.T).sum(0) + x.sum(1)

        whole = operand(n).astype(np.float64)
        assert result.tolist() == ((whole @ whole.T).sum(0) + whole.sum(1)).tolist()
    assert families() == 1


def test_two_variables_serve_every_pair_of_sizes():
    m = Variable("m", 1, 64)
    for rows, columns in ((3, 5), (5, 3), (1, 64), (64, 1), (4, 4)):
        a = mark_dynamic(Tensor(operand(rows)), 0, N)
        b = mark_dynamic(Tensor(operand(columns)), 0, m)
        result = (a @ b.T).reshape(-1) + 1

        assert result.tolist() == ((operand(rows) @ operand(columns).T).reshape(-1) + 1).tolist()
    assert families() <= 1 + (realize.default_device_name() != "CPU") * 4


PLACE = Variable("place", 0, 199)


def test_writing_at_200_places_takes_one_program_and_never_copies_the_cache():
    cache = Tensor.zeros(2, 200, 16).contiguous().realize()
    wanted = np.zeros((2, 200, 16), np.float32)
    known = set(planning._COMPILED)
    before = realize.storage_of(cache.cell.leaf).address
    for place in range(200):
        key = np.full((2, 1, 16), place + 1, np.float32)
        at = PLACE.bind(place)
        cache[:, at : at + 1] = Tensor(key)
        cache.realize()
        wanted[:, place] = place + 1
        if place % 60 == 7:
            assert cache[:, : at + 1].sum(1).tolist() == wanted[:, : place + 1].sum(1).tolist()

    assert realize.storage_of(cache.cell.leaf).address == before
    assert cache.tolist() == wanted.tolist()
    assert len(set(planning._COMPILED) - known) == 2  # the write, and the sums of the prefix


def test_a_part_between_places_has_the_difference_as_its_size():
    x = Tensor(operand(200))
    for begin, end in ((0, 1), (3, 3), (10, 150), (199, 199)):
        first, last = PLACE.bind(begin), Variable("last", 0, 200).bind(end)

        assert x[first:last].shape == (end - begin, FEATURES)
        assert (x[first:last] * 2).tolist() == (operand(200)[begin:end] * 2).tolist()
        assert x[first].tolist() == operand(200)[begin].tolist()


def test_a_multiple_needs_no_single_elements():
    m = Variable("m", 8, 4096, multiple_of=8)
    x = mark_dynamic(Tensor(operand(16)), 0, m)
    y = (x.reshape(-1, 8, FEATURES) * 2).uop

    assert y.shape == (2, 8, FEATURES)
    assert [each for each in walk([y.shape[0].expression]) if each.op is Op.FLOORDIV] == []


# Sizes count like ints.
def test_a_size_counts_like_its_value():
    n = N.bind(5)

    assert isinstance(n + 1, Size)
    assert (n + 1, 2 * n, n // 2, -n, n % 3, 7 - n) == (6, 10, 2, -5, 2, 2)
    assert (n * 4) // 4 == n
    assert n - n == 0
    assert f"{(n, 2)}" == "(5, 2)"
    assert list(range(n)) == [0, 1, 2, 3, 4]
    assert (n / 2, n**2, 2**n, n * 1.5, n > 4.5) == (2.5, 25, 32, 7.5, True)


def test_what_ends_decide_is_no_claim():
    n = N.bind(5)
    with recorded_claims() as claims:
        assert n > 0
        assert n + 1 != n
        assert n * 4 == 4 * n
        assert n < 5000

    assert not claims


def test_a_branch_and_a_plain_number_are_claims():
    n = N.bind(5)
    with recorded_claims() as claims:
        is_short = n < 10
        counted = len(range(n))

    assert (is_short, counted) == (True, 5)
    assert [each.op for each in claims] == [Op.LT, Op.EQ]


def test_what_python_needs_is_computed_for_each_value_apart():
    for n in (3, 9, 3):
        x = mark_dynamic(Tensor(operand(n)), 0, N)
        rows = [x[i].sum() for i in range(x.shape[0])]

        assert Tensor.stack(rows).tolist() == operand(n).sum(1).tolist()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Variable("n", 4, 3),
            "variable: 'n' has no such values: 4 to 3, of 1; 0 <= min <= max, and multiple_of must "
            "be above 0.",
        ),
        (
            lambda: N.bind(0),
            "variable: not a value of Variable('n', 1, 4096): 0; it must be between the ends, and "
            "a multiple.",
        ),
        (
            lambda: Variable("n", 8, 64, 8).bind(12),
            "variable: not a value of Variable('n', 8, 64, multiple_of=8): 12; it must be between "
            "the ends, and a multiple.",
        ),
    ],
)
def test_a_value_that_a_variable_cannot_have_is_refused(make, sentence):
    with pytest.raises(ValueOutOfRange) as error:
        make()

    assert str(error.value) == sentence


@pytest.mark.parametrize(
    "make", [lambda: tt.tensor(1.0), lambda: Tensor([1.0], requires_grad=True)]
)
def test_what_cannot_be_open_is_refused(make):
    x = make()
    with pytest.raises(ShapeError) as error:
        mark_dynamic(x, 0, N)

    assert str(error.value) == (
        f"mark_dynamic: the tensor has no axis to be open: shape {x.shape}; it must have axes and "
        "require no gradient itself."
    )
