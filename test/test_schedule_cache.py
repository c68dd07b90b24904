"""A fresh process reads its plans from the disk, and makes those again that are of no use."""

import json
import os
import subprocess
import sys

import pytest

from tinytensor import Tensor, config
from tinytensor.lazy import lazy_import
from tinytensor.runtime.cache import open_cache
from tinytensor.runtime.device import Device
from tinytensor.schedule_cache import key_of_structure, read_plan

LINE = """
import sys
from tinytensor import Tensor
x = Tensor([[1.0, -2.0], [3.0, 4.0]])
(x * 2).add_(1).tolist()
print((x @ x.T + 1).relu().tolist(), x.softmax(1).sum().item())
print("tinytensor.planning" in sys.modules)
"""


def fresh_process(directory, text=LINE, **settings):
    environment = {
        **{key: value for key, value in os.environ.items() if key != "TT_VERIFY"},
        "TT_CACHE_DIR": str(directory),
        "TT_DEVICE": "CPU",
        **settings,
    }
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_second_process_schedules_nothing(tmp_path):
    first = fresh_process(tmp_path).stdout.splitlines()
    second = fresh_process(tmp_path).stdout.splitlines()

    assert first == ["[[6.0, 0.0], [0.0, 26.0]] 2.0", "True"]
    assert second == ["[[6.0, 0.0], [0.0, 26.0]] 2.0", "False"]


def test_kernels_are_named_whatever_is_on_the_disk(tmp_path):
    fresh_process(tmp_path)
    told = fresh_process(tmp_path, DEBUG="1").stderr

    assert "contract_f32_2x2x2" in told


def truncate(content):
    return content[: len(content) // 2]


def with_another_type(content):
    return json.dumps({**json.loads(content), "launches": ["first"]}).encode()


def without_results(content):
    record = json.loads(content)
    del record["results"]
    return json.dumps(record).encode()


@pytest.mark.parametrize("damage", [truncate, with_another_type, without_results])
def test_a_record_that_is_no_plan_is_made_again(damage, tmp_path):
    fresh_process(tmp_path)
    with config(cache_dir=str(tmp_path)):
        store = open_cache()
        for file in tmp_path.glob("*.txt"):
            content = store.get(file.name)
            if b'"arena_bytes"' in content:
                store.put(file.name, damage(content))

    again = fresh_process(tmp_path).stdout.splitlines()
    after = fresh_process(tmp_path).stdout.splitlines()

    assert again == ["[[6.0, 0.0], [0.0, 26.0]] 2.0", "True"]
    assert after == ["[[6.0, 0.0], [0.0, 26.0]] 2.0", "False"]


def remembering(function, results):
    """The function, which also puts what it gives into a list."""

    def remember(*given):
        results.append(function(*given))
        return results[-1]

    return remember


def test_a_plan_comes_back_equal(tmp_path, monkeypatch):
    kept, keys = [], []
    planning = lazy_import("tinytensor.planning", None, "test")
    monkeypatch.setattr(planning, "make_plan", remembering(planning.make_plan, kept))
    make_key = remembering(key_of_structure, keys)
    monkeypatch.setattr("tinytensor.realize.key_of_structure", make_key)
    with config(cache_dir=str(tmp_path), verify=False):
        Tensor([[1.0, 2.0, 3.0, 4.5]]).softmax(1).cumsum(1).tolist()
        (plan,), (key,) = kept, keys

        read = read_plan(key, Device["CPU"])

    assert read.results == plan.results
    assert read.arena_bytes == plan.arena_bytes
    assert [each.addresses for each in read.launches] == [each.addresses for each in plan.launches]
    programs = [each.compiled.program for each in plan.launches]
    assert [each.compiled.program for each in read.launches] == programs


def test_what_no_other_process_has_makes_no_key():
    assert key_of_structure((object(),), (), Device["CPU"]) is None
