"""Tensors take part in Python's and NumPy's protocols as their values would."""

import copy

import numpy as np

from tinytensor import Tensor, dtypes, nn


def test_numpy_reads_the_values():
    x = Tensor([1.0, 2.0])

    assert np.asarray(x).dtype == np.float32
    assert np.stack([x, x]).tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert np.asarray(x, dtype=np.int64).tolist() == [1, 2]


def test_a_list_of_0d_tensors_becomes_a_vector():
    assert Tensor([Tensor(1.0), Tensor(2.0)]).tolist() == [1.0, 2.0]


def test_rows_are_walked():
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


def test_a_walked_row_is_a_view():
    x = Tensor([[1, 2], [3, 4]])

    for row in x:
        row += 1

    assert x.tolist() == [[2, 3], [4, 5]]


def test_an_element_is_found_in_any_row():
    x = Tensor([[1, 2], [3, 4]])

    assert 3 in x
    assert 5 not in x


def test_a_0d_tensor_is_formatted_as_its_number():
    assert f"{Tensor(2.5):.3f} {Tensor(7)}" == "2.500 7"
    assert f"{Tensor([7])}" == repr(Tensor([7]))


def test_plus_gives_the_tensor():
    assert (+Tensor([1], dtypes.int32)).tolist() == [1]


def test_a_copied_parameter_has_no_gradient():
    layer = nn.Linear(2, 1)
    layer(Tensor.ones(1, 2)).sum().backward()

    copied = copy.deepcopy(layer)
    copied(Tensor.ones(1, 2)).sum().backward()

    assert copied.weight.grad.tolist() == [[1.0, 1.0]]
    assert layer.weight.grad.tolist() == [[1.0, 1.0]]
