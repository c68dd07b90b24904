"""The page of operators is what the records say, and its script finds what differs."""

import math

import numpy as np
import pytest
from meta.tree import ROOT

import tinytensor
from extra.coverage.compare import Oracle, difference
from extra.coverage.draws import DRAWS, Spread, difference_of_spread
from extra.coverage.record import EXACT, Operand, Record, function, invoke, on, resolve, written
from extra.coverage.records import RECORDS, names_without_record
from extra.coverage.run import run_record
from extra.coverage.samples import laid_out, values_of
from extra.coverage.table import page_of
from tinytensor import Tensor, dtypes, functions
from tinytensor.config import config
from tinytensor.nn import functional

PAGE = (ROOT / "docs/coverage.md").read_text("utf-8")
NAMES = [each.name for each in (*RECORDS, *DRAWS)]


def is_listed(name):
    return f"\n| `{name}` | " in PAGE


def test_the_page_names_every_record():
    assert [name for name in NAMES if not is_listed(name)] == []


def test_a_name_without_record_is_found(monkeypatch):
    monkeypatch.setattr(Tensor, "no_such_operator", Tensor.exp, raising=False)

    assert "no_such_operator" in names_without_record()
    assert "exp" not in names_without_record()


def test_the_page_tells_of_no_difference():
    assert "fails" not in PAGE.partition("| op |")[2]


def test_the_page_counts_its_own_lines():
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]

    counting = [line for line in lines if " missing |" not in line]
    assert f"{len(counting)} of {len(lines)} operators count" in PAGE


NUMPY = {
    "exp": np.exp,
    "sin": np.sin,
    "tanh": np.tanh,
    "floor": np.floor,
    "square": np.square,
    "atan2": np.arctan2,
    "mul": np.multiply,
    "copysign": np.copysign,
    "matmul": np.matmul,
}


@pytest.mark.parametrize("name", NUMPY)
def test_an_example_is_its_numpy_function(name):
    record = next(each for each in RECORDS if each.name == name)
    example = record.examples[0]
    arrays = [values_of(each, "float64", "7") for each in example.operands]

    with config(device="PYTHON"):
        result = invoke(tinytensor, record, example, [Tensor(each) for each in arrays])

    np.testing.assert_allclose(result.numpy(), NUMPY[name](*arrays), rtol=16 * 2.0**-52)


@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded", ""])
def test_a_layout_shows_the_same_values_to_both(layout):
    values = np.arange(12.0).reshape(3, 4)

    stored, view = laid_out(values, layout)

    expected = np.broadcast_to(values[:1], (3, 4)) if layout == "expanded" else values
    with config(device="PYTHON"):
        np.testing.assert_array_equal(view(Tensor(stored)).numpy(), expected)


def test_an_operand_is_read_from_text():
    assert Operand.parse("2 3 below4 int64") == Operand((2, 3), "below4", "int64")
    assert Operand.parse("") == Operand(())


class Known:
    """A tensor of PyTorch's, as far as a comparison looks at it."""

    def __init__(self, values, dtype):
        self.values, self.dtype = np.asarray(values), f"torch.{dtype}"
        self.shape = self.values.shape

    def detach(self):
        return self

    def double(self):
        return Known(self.values.astype(np.float64), "float64")

    def numpy(self, force):
        assert force
        return self.values


STEP = 2.0**-23
FOUND = [
    ([1.0], [1.0], EXACT, True),
    ([1.0], [1.0 + STEP], EXACT, False),
    ([1.0], [1.0 + STEP], function(1), True),
    ([1.0], [1.0 + 3 * STEP], function(1), False),
    ([0.0], [-0.0], EXACT, False),
    ([math.nan], [math.nan], EXACT, True),
    ([math.nan], [1.0], function(9), False),
    ([math.inf], [1e300], function(1), True),
    ([math.inf], [-1e300], function(1), False),
    ([math.inf], [1.0], function(9), False),
]


@pytest.mark.parametrize(("ours", "theirs", "tolerance", "is_same"), FOUND, ids=str)
def test_a_difference_is_found(ours, theirs, tolerance, is_same):
    known = Known(theirs, "float32")
    oracle = Oracle(known, known.double())

    with config(device="PYTHON"):
        found = difference(Tensor(ours), oracle, tolerance)

    assert (found == "") is is_same


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ValueError("no"), Known([1.0], "float32")),
        (Tensor([1.0], device="PYTHON"), ValueError("no")),
        (ValueError("no"), IndexError("no")),
        (Tensor([1], device="PYTHON"), Known([1.0], "float32")),
        (Tensor([1.0], device="PYTHON"), Known([[1.0]], "float32")),
        ((Tensor([1.0], device="PYTHON"),), (Known([1.0], "float32"),) * 2),
        (True, False),
    ],
    ids=["refused", "taken", "other error", "dtype", "shape", "count", "truth"],
)
def test_another_kind_of_result_is_a_difference(ours, theirs):
    assert difference(ours, Oracle(theirs), EXACT)


def test_numbers_that_are_spread_otherwise_are_found():
    spread = Spread(0.5, 12**-0.5, 0, 1)
    numbers = np.random.default_rng(7).random(4096)

    assert difference_of_spread(numbers, spread, dtypes.float32) == ""
    assert "mean" in difference_of_spread(numbers**1.1, spread, dtypes.float32)
    assert "range" in difference_of_spread(numbers + 1, spread, dtypes.float32)
    assert "deviation" in difference_of_spread(numbers * 0 + 0.5, spread, dtypes.float32)


def test_what_is_in_place_changes_a_copy():
    x = Tensor([[1.0, 2.0]], device="PYTHON")

    result = written("add_", x, 1)

    assert result.tolist() == [[2, 3]]
    assert x.tolist() == [[1, 2]]


def test_a_method_that_only_returns_its_result_is_not_in_place(monkeypatch):
    monkeypatch.setattr(Tensor, "add_", Tensor.add)

    with pytest.raises(AssertionError, match="add_: the result is not the tensor itself"):
        written("add_", Tensor([1.0], device="PYTHON"), 1)


def test_a_missing_operator_is_told_as_missing():
    record = Record("Tensor.no_such_operator", (on("3 4"),))
    where = {"commit": "0123abc", "date": "2026-01-02"}

    verdict = run_record(record, None)
    page = page_of([verdict], "CPU", "2.13.0", where)

    assert not verdict.counts
    assert "| `no_such_operator` | | missing |" in page
    assert "commit `0123abc`, 2026-01-02" in page


def test_functions_of_the_package_are_found_by_their_path():
    assert resolve(tinytensor, "nn.functional.softplus") is functional.softplus
    assert resolve(tinytensor, "einsum") is functions.NAMES["einsum"]


def test_a_wrong_operator_is_found():
    torch = pytest.importorskip("torch")
    wrong = Record("Tensor.exp", (on("3 4", call=lambda t, x: x.sin() if t is torch else x.cos()),))

    with config(device="PYTHON"):
        verdict = run_record(wrong, torch)

    assert verdict.cells["forward"] == verdict.cells["gradient"] == "fails"
    assert not verdict.counts


def test_an_example_that_nobody_takes_is_found():
    torch = pytest.importorskip("torch")
    wrong = Record("Tensor.exp", (on("3 4", no_such_option=1),))

    with config(device="PYTHON"):
        verdict = run_record(wrong, torch)

    assert "never taken" in verdict.problems[0]


@pytest.mark.parametrize("number", range(0, len(RECORDS), 3))
def test_a_third_of_the_operators_is_pytorchs(number):
    torch = pytest.importorskip("torch")

    with config(device="PYTHON"):
        verdict = run_record(RECORDS[number], torch)

    assert verdict.problems == ()
