"""Each kind of guard of a jitted function, provoked, with the whole sentence that it says."""

import pytest
from meta.tree import ROOT

from extra.misses import CASES, fill_in, table

SENTENCES = {
    "number_of_arguments": "jit: scaled: traced anew: by is given now.",
    "length_of_a_list": "jit: summed: traced anew: xs[2] is given now.",
    "kind_of_a_nest": "jit: summed: traced anew: xs is a tuple of 2, was a list of 2.",
    "keys_of_a_dict": (
        "jit: summed: traced anew: xs['b'] is given now, xs['a'] is no longer given."
    ),
    "named_argument": "jit: scaled: traced anew: other arguments are given by name.",
    "a_float": "jit: scaled: traced anew: by is 3.0, was 2.0.",
    "an_int": "jit: scaled: traced anew: by is 3, was 2.",
    "a_flag": "jit: scaled: traced anew: by is False, was True.",
    "a_name": "jit: scaled: traced anew: by is None, was 'mean'.",
    "an_object": "jit: scaled: traced anew: by is another one.",
    "shape": "jit: scaled: traced anew: x.shape is (3,), was (2,).",
    "shape_that_varies": "jit: scaled: traced for all sizes: x.shape is (3,), was (2,).",
    "shape_that_is_tested": (
        "jit: tested: traced for all sizes: x.shape is (8,), was (2,); an earlier one does not "
        "serve: the function does something else for these sizes."
    ),
    "shape_beyond_its_bounds": (
        "jit: scaled: traced for all sizes: x.shape is (100000,), was (2,); an earlier one does "
        "not serve: 100000 is not from 1 to 4096."
    ),
    "shapes_that_were_equal": (
        "jit: <lambda>: traced for all sizes: x.shape is (4,), was (2,), y.shape is (5,), was "
        "(2,); an earlier one does not serve: sizes that were equal differ."
    ),
    "number_of_axes": "jit: scaled: traced anew: x.shape is (2, 1), was (2,).",
    "stride": (
        "jit: scaled: traced anew: x.view is all of its memory, was strides (1, 3), offset 0."
    ),
    "offset": (
        "jit: scaled: traced anew: x.view is strides (1,), offset 3, was strides (1,), offset 0."
    ),
    "dtype": "jit: scaled: traced anew: x.dtype is dtypes.float16, was dtypes.float32.",
    "device": "jit: scaled: traced anew: x.device is PYTHON, was CPU.",
    "aliasing": (
        "jit: added: traced anew: y.alias is tensor 0 in memory 0, was tensor 1 in memory 1."
    ),
    "shared_memory": (
        "jit: added: traced anew: y.alias is tensor 1 in memory 0, was tensor 1 in memory 1."
    ),
    "requires_a_gradient": "jit: scaled: traced anew: x.requires_grad is True, was False.",
    "has_a_gradient": "jit: scaled: traced anew: x.has_grad is True, was False.",
    "gradient_mode": "jit: scaled: traced anew: gradients is False, was True.",
    "a_setting": "jit: scaled: traced anew: fuse is 0, was 3.",
    "outer_variable": "jit: <lambda>: traced anew: factor is 3.0, was 2.0.",
    "global_variable": "jit: <lambda>: traced anew: SCALE is 3.0, was 2.0.",
    "a_container": "jit: <lambda>: traced anew: factors has changed.",
    "an_attribute": "jit: scaled: traced anew: what Options holds has changed.",
    "a_module": "jit: <lambda>: traced anew: an attribute of a module has changed: training.",
    "an_optimizer": (
        "jit: step: traced anew: an option or the state of SGD has changed: weight_decay."
    ),
    "kind_of_a_tensor_outside": (
        "jit: <lambda>: traced anew: a tensor from outside is float16 (2,) on CPU, was "
        "float32 (2,) on CPU."
    ),
    "view_of_a_tensor_outside": (
        "jit: <lambda>: traced anew: a tensor from outside sees strides (1, 2), offset 0, "
        "saw all of its memory."
    ),
    "view_of_a_tensor_outside_for_all_sizes": (
        "jit: <lambda>: traced for all sizes: x.shape is (4, 2), was (2, 2); an earlier one does "
        "not serve: a tensor from outside sees strides (1, 2), offset 0, saw all of its memory."
    ),
    "memory_of_tensors_outside": (
        "jit: <lambda>: traced anew: tensors that had memory of their own share it."
    ),
    "memory_that_was_shared": (
        "jit: <lambda>: traced anew: tensors that shared memory have some of their own."
    ),
    "gradient_of_a_tensor_outside": (
        "jit: <lambda>: traced anew: the gradient of a tensor from outside came or went."
    ),
    "argument_that_is_read_outside": (
        "jit: <lambda>: traced anew: tensors that had memory of their own share it."
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_miss_says_what_was_other(name):
    assert CASES[name].sentence == SENTENCES[name]


def test_each_kind_of_fact_is_provoked():
    kinds = {each.kind for each in CASES.values()}

    assert kinds == {
        *("structure", "Python values", "shape", "stride and offset", "dtype", "device"),
        *("aliasing", "gradients", "settings", "captured state"),
    }


def test_the_page_has_the_table():
    page = (ROOT / "docs/decisions/jit.md").read_text("utf-8")

    assert "<!-- misses -->" in page
    assert fill_in(page, table()) == page, (
        "run: python -m extra.misses --write docs/decisions/jit.md"
    )
