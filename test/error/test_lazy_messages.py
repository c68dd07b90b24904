import pytest

from tinytensor.lazy import lazy_import


def test_a_missing_module_of_an_extra_names_the_extra():
    with pytest.raises(ImportError) as caught:
        lazy_import("tinytensor_absent.part", "cuda", "CUDA")

    assert str(caught.value) == (
        "CUDA: a module cannot be imported: tinytensor_absent.part "
        "(No module named 'tinytensor_absent'); "
        "it must be installed: pip install tinytensor[cuda]."
    )


def test_a_missing_module_of_the_package_itself_names_the_package():
    with pytest.raises(ImportError) as caught:
        lazy_import("tinytensor_absent", None, "CPU")

    assert str(caught.value) == (
        "CPU: a module cannot be imported: tinytensor_absent "
        "(No module named 'tinytensor_absent'); it must be installed: pip install tinytensor."
    )
