"""Warns when the GPU tests have not passed for a while: no machine of the CI has a GPU."""

import json
import subprocess
import warnings

import pytest
from meta.tree import ROOT

from extra.measurements import GPU_RUN

MOST_COMMITS_BEHIND = 20


def recorded_run():
    """What was written down of the last green run; None if nothing was."""
    return json.loads(GPU_RUN.read_text("utf-8")) if GPU_RUN.exists() else None


def commits_since(commit):
    """How many commits came after one; None if git or the commit is not there."""
    command = ["git", "-C", str(ROOT), "rev-list", "--count", f"{commit}..HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(done.stdout)


def complaint(run, behind):
    """What is wrong with the last run, in words; empty if nothing is."""
    if run is None:
        return "no run of the GPU tests is recorded"
    if behind is None:
        return f"the GPU tests passed at {run['commit']}, which is no commit before this one"
    if behind > MOST_COMMITS_BEHIND:
        return f"the GPU tests passed {behind} commits ago; run them again"
    return ""


def test_the_gpu_tests_passed_lately():
    run = recorded_run()

    words = complaint(run, commits_since(run["commit"]) if run else None)

    if words:
        warnings.warn(words, stacklevel=1)
    assert run is None or {"commit", "date", "device", "passed", "command"} <= run.keys()


@pytest.mark.parametrize(
    ("run", "behind", "words"),
    [
        (None, None, "no run of the GPU tests is recorded"),
        ({"commit": "beef"}, None, "passed at beef, which is no commit before this one"),
        ({"commit": "beef"}, 21, "the GPU tests passed 21 commits ago"),
        ({"commit": "beef"}, 20, ""),
    ],
)
def test_a_run_that_is_old_or_unknown_is_named(run, behind, words):
    found = complaint(run, behind)

    assert words in found
    assert bool(words) == bool(found)


def test_a_commit_that_never_was_is_unknown():
    assert commits_since("0" * 40) is None
    assert commits_since("not-a-commit") is None
