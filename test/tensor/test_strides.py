"""Strides, offsets and contiguity are what eager memory would have; they decide what aliases."""

import pytest

from tinytensor import Tensor, no_grad
from tinytensor.errors import IndexOutOfRange, ShapeError

X = Tensor.zeros(2, 3, 4)

LAYOUTS = [
    (X, (12, 4, 1), 0, True),
    (X.permute(2, 0, 1), (1, 12, 4), 0, False),
    (X.transpose(0, 1).transpose(0, 1), (12, 4, 1), 0, True),
    (X[1], (4, 1), 12, True),
    (X[:, 1:, ::2], (12, 4, 2), 4, False),
    (X[1:][:, 2], (12, 1), 20, True),
    (X[1:2], (12, 4, 1), 12, True),
    (X.unsqueeze(1), (12, 12, 4, 1), 0, True),
    (X.unsqueeze(-1), (12, 4, 1, 1), 0, True),
    (X.T.unsqueeze(0), (4, 1, 4, 12), 0, False),
    (X[:, :1].squeeze(1), (12, 1), 0, False),
    (X[None, 0, ..., None], (24, 4, 1, 1), 0, True),
    (X[:, :1].expand(2, 5, 4), (12, 0, 1), 0, False),
    (X.expand(5, 2, 3, 4), (0, 12, 4, 1), 0, False),
    (X.reshape(6, 4), (4, 1), 0, True),
    (X[:, :, :2].reshape(6, 2), (4, 1), 0, False),
    (X[:, :2].reshape(16), (1,), 0, True),
    (X.diagonal(1, 1, 2), (12, 5), 1, False),
    (X.diagonal(-1, 0, 1), (1, 16), 12, True),
    (X.unfold(2, 2, 2), (12, 4, 2, 1), 0, True),
    (X.unfold(2, 2, 1), (12, 4, 1, 1), 0, False),
    (X.flip(0), (12, 4, 1), 0, True),
    (Tensor.zeros(2, 0, 3), (3, 3, 1), 0, True),
    (Tensor.zeros(2, 0, 3).T, (1, 3, 3), 0, True),
    (Tensor(1.0), (), 0, True),
    (Tensor(1.0).expand(2, 3), (0, 0), 0, False),
]


@pytest.mark.parametrize(("x", "strides", "offset", "is_contiguous"), LAYOUTS)
def test_layout(x, strides, offset, is_contiguous):
    assert x.stride() == strides
    assert [x.stride(axis) for axis in range(x.ndim)] == list(strides)
    assert x.storage_offset() == offset
    assert x.is_contiguous() is is_contiguous


def test_what_lies_in_order_is_its_own_contiguous_form():
    assert X.contiguous() is X
    assert X.T.contiguous().stride() == (6, 2, 1)
    assert X.T.clone().is_contiguous()


def test_a_result_is_laid_out_in_row_major_order():
    assert (X.T + 1).stride() == (6, 2, 1)


def test_a_view_that_strides_cannot_give_is_refused():
    with pytest.raises(ShapeError):
        X.T.view(24)
    with pytest.raises(ShapeError):
        X[:, :2].view(16)

    assert X[:, :2].view(2, 8).stride() == (12, 1)


def test_a_stride_of_no_axis_is_refused():
    with pytest.raises(IndexOutOfRange):
        X.stride(3)


def test_strides_do_not_depend_on_gradients():
    w = Tensor.zeros(2, 3, requires_grad=True)

    with no_grad():
        assert w.T.stride() == w.detach().T.stride() == w.T.stride() == (1, 3)


def test_views_that_change_their_own_tensor():
    x = Tensor.arange(6).reshape(2, 3)
    y = x[:]

    assert x.t_() is x
    assert x.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.unsqueeze_(0).transpose_(0, 2).stride() == (3, 1, 3)
    assert x.squeeze_().tolist() == y.tolist() == [[0, 1, 2], [3, 4, 5]]
    x[0, 0] = 9
    assert y[0, 0].item() == 9
