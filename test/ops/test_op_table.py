import dataclasses

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.fold import fold
from tinytensor.ops.infer import INFER
from tinytensor.ops.infer_blocks import BLOCK_INFER
from tinytensor.ops.interpret import EVALUATE
from tinytensor.ops.interpret_blocks import BLOCKS
from tinytensor.ops.interpret_indexed import INDEXED
from tinytensor.ops.interpret_linear import LINEAR
from tinytensor.ops.interpret_tensor import TENSOR
from tinytensor.ops.op import ELEMENTWISE, MACHINE, Form, Op
from tinytensor.ops.text import PARSE_VALUE

# Ops that are no step of an interpreter: the caller gives a leaf its array and a variable its
# value, accesses read the buffer behind a PARAM, and a sink is the list of its stores.
WITHOUT_STEP = {
    Form.TENSOR: {Op.BUFFER, Op.VARIABLE, Op.RUN},
    Form.INDEXED: {Op.PARAM, Op.SINK},
    Form.LINEAR: set(BLOCK_INFER),  # blocks of threads have an interpreter of their own
}
INTERPRETERS = {Form.TENSOR: TENSOR, Form.INDEXED: INDEXED, Form.LINEAR: LINEAR}
FORMS = list(INTERPRETERS)


@pytest.mark.parametrize("op", Op, ids=lambda op: op.name)
def test_every_op_has_a_shape(op):
    assert op in INFER


@pytest.mark.parametrize("op", Op, ids=lambda op: op.name)
def test_every_op_is_of_some_form(op):
    assert any(form in op.forms for form in FORMS)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_interpreter_has_the_ops_of_its_form_and_no_others(form):
    of_form = {op for op in Op if form in op.forms}

    assert set(INTERPRETERS[form]) == of_form - WITHOUT_STEP[form]


def test_the_interpreter_of_blocks_has_all_linear_ops():
    assert set(BLOCKS) == {op for op in Op if Form.LINEAR in op.forms}


def test_elementwise_ops_have_a_meaning():
    assert set(EVALUATE) == ELEMENTWISE | set(MACHINE)


@pytest.mark.parametrize("op", Op, ids=lambda op: op.name)
def test_every_attribute_can_be_read_back(op):
    fields = () if op.attrs_type is None else dataclasses.fields(op.attrs_type)

    assert {str(field.type) for field in fields} <= set(PARSE_VALUE)


@pytest.mark.parametrize("combine", Combine, ids=lambda combine: combine.name)
def test_every_combine_folds_a_single_value_to_itself(combine):
    expected = 0 if combine in (Combine.ARGMAX, Combine.ARGMIN) else 5

    assert fold(combine, np.array([5]), (0,), dtypes.int64).tolist() == [expected]
