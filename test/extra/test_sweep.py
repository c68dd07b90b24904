"""The sweep of candidates tells the estimate's choice, the best, and their ratio."""

import json

import numpy as np
import pytest

from extra.bench import sweep
from extra.measurements import page
from tinytensor import dtypes
from tinytensor.codegen.plan import take
from tinytensor.target import SM90A


class Hopper:
    """Stands for a device on which nothing runs."""

    name = "CPU"
    target = SM90A


def test_a_sweep_writes_lines_that_the_page_shows(tmp_path, monkeypatch):
    kept = tmp_path / "sweep.jsonl"
    found = [sweep.Measured("8 x 32", 12.0, 1.0), sweep.Measured("8 x 48", 10.0, 1.25)]
    monkeypatch.setattr(sweep, "measure", lambda *given: found)
    monkeypatch.setattr(sweep, "detail", lambda each, listed: {"candidate": each.name})

    status = sweep.main(["70x90x300", "--device", "CPU", "--commit", "abc", "--json", str(kept)])

    usual, best = [json.loads(line) for line in kept.read_text("utf-8").splitlines()]
    assert status == 0
    assert (usual["device_us"], usual["of_best"], usual["candidate"]) == (12.0, 0.8, "8 x 32")
    assert (best["device_us"], best["candidate"], best["wrong"]) == (9.6, "8 x 48", 0)
    row = "| sweep f32-70x90x300-NN | 12.0 | 9.6 | 0.80 best candidate |  |"
    assert row in page(tmp_path)


def test_a_sweep_of_the_cpu_measures_all_candidates(tmp_path, capsys):
    kept = tmp_path / "sweep.jsonl"
    options = ["--device", "CPU", "--seconds", "0.1", "--json", str(kept)]

    status = sweep.main(["20x40x30", *options])

    usual, best = [json.loads(line) for line in kept.read_text("utf-8").splitlines()]
    assert status == 0
    assert usual["measured"] == usual["legal"] == len(best["candidates"]) > 1
    assert "of the best of" in capsys.readouterr().out


def test_a_wrong_result_is_said(monkeypatch, capsys):
    monkeypatch.setattr(sweep, "is_right", lambda product, device: False)

    assert sweep.main(["8x8x8", "--device", "CPU"]) == 1
    assert "f32-8x8x8-NN                   wrong" in capsys.readouterr().out


@pytest.mark.parametrize("product", sweep.PRODUCTS, ids=lambda each: each.name)
def test_each_product_has_forty_candidates_of_different_names(product):
    target = SM90A.with_fp32_matmul(product.how)
    kernel = sweep.kernel_of(product, Hopper, target)
    taken = take(kernel, target)

    names = [each.name for each in taken.plan.candidates(taken.facts, target)]

    is_own = product.dtype.is_half or product.how != "exact"
    assert taken.plan.name == ("hopper" if is_own else "multiply-add")
    assert len(set(names)) == len(names) >= 40


@pytest.mark.parametrize("product", [
    sweep.Product(9, 7, 5, dtypes.float16, "TT", True), sweep.Product(7, 9, 8, dtypes.bfloat16),
], ids=lambda each: each.name)  # fmt: skip
def test_what_is_compared_with_float64_is_the_product(product):
    assert sweep.is_right(product, sweep.Device["CPU"])
    assert sweep.rounded(np.array([257.0]), dtypes.bfloat16) == 256
