import subprocess

import pytest

from tinytensor.lazy import lazy_import


def test_a_module_that_is_there_is_given():
    assert lazy_import("subprocess", None, "CPU") is subprocess


def test_an_inner_failure_is_kept_as_the_cause(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import quite_absent\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ImportError) as caught:
        lazy_import("half_there", "cuda", "CUDA")

    assert caught.value.name == "half_there"
    assert caught.value.__cause__.name == "quite_absent"
