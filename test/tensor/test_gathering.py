"""Reads at computed places give NumPy's elements, fused or not, and never leave their axis."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, config, dtypes
from tinytensor.errors import IndexOutOfRange
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.tensor.gathering import checked

DEVICES = ["CPU", "PYTHON"]
TABLE = np.arange(60, dtype=np.float32).reshape(12, 5) % 7  # small integers: every sum is exact
ROWS = np.array([3, -1, 0, 3, 11, -12, 7])
MATRIX = np.arange(15, dtype=np.float32).reshape(5, 3) % 4

PROGRAMS = {
    "embedding": (lambda w, rows, m: w[rows], lambda w, rows, m: w[rows]),
    "epilogue": (lambda w, rows, m: w[rows] * 2 + 1, lambda w, rows, m: w[rows] * 2 + 1),
    "prologue": (lambda w, rows, m: (w * w)[rows], lambda w, rows, m: (w * w)[rows]),
    "transposed": (lambda w, rows, m: w[rows].T, lambda w, rows, m: w[rows].T),
    "summed": (lambda w, rows, m: w[rows].sum(0), lambda w, rows, m: w[rows].sum(0)),
    "of a sum": (lambda w, rows, m: w.sum(1)[rows] + 1, lambda w, rows, m: w.sum(1)[rows] + 1),
    "times a matrix": (lambda w, rows, m: w[rows] @ m, lambda w, rows, m: w[rows] @ m),
    "of a product": (lambda w, rows, m: (w @ m)[rows], lambda w, rows, m: (w @ m)[rows]),
    "by an argmax": (lambda w, rows, m: w[w.argmax(0)], lambda w, rows, m: w[w.argmax(0)]),
    "by a gather": (lambda w, rows, m: w[rows[rows % 7]], lambda w, rows, m: w[rows[rows % 7]]),
    "two axes": (lambda w, rows, m: w[rows, rows % 5], lambda w, rows, m: w[rows, rows % 5]),
    "of a flip": (lambda w, rows, m: w.flip(0)[rows][::2], lambda w, rows, m: w[::-1][rows][::2]),
    "padded": (
        lambda w, rows, m: w[rows].pad((1, 0, 0, 2)),
        lambda w, rows, m: np.pad(w[rows], ((0, 2), (1, 0))),
    ),
    "dot": (
        lambda w, rows, m: (w[rows] * w[rows % 7]).sum(1),
        lambda w, rows, m: (w[rows] * w[rows % 7]).sum(1),
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fuse", [0, 3])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_around_a_gather(program, fuse, device):
    ours, theirs = program

    with config(fuse=fuse):
        found = ours(*[Tensor(each, device=device) for each in (TABLE, ROWS, MATRIX)]).numpy()

    assert found.tolist() == theirs(TABLE, ROWS, MATRIX).tolist()


def test_a_gather_and_what_follows_are_one_kernel():
    table, rows = Tensor(TABLE), Tensor(ROWS)

    kernels = kernels_of(table[rows] * 2 + 1)

    assert len(kernels) == 1


def test_the_loss_of_a_class_reads_its_logarithm_alone():
    scores = Tensor.randn(6, 5)
    classes = Tensor([0, 4, 2, 2, 1, 3])

    found = scores.log_softmax(1).gather(1, classes.unsqueeze(1)).squeeze(1)

    wide = scores.numpy().astype(np.float64)
    logs = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    # Each of the few roundings and functions is within 2 epsilon of magnitudes below 8.
    allowed = 8 * 8 * dtypes.float32.epsilon
    assert np.abs(found.numpy() - logs[np.arange(6), classes.numpy()]).max() < allowed


def test_index_tensors_of_neighboring_axes_stand_in_their_place():
    x = np.arange(24).reshape(2, 3, 4)
    rows, columns = np.array([[0], [2]]), np.array([1, 3, 0])

    found = Tensor(x)[:, Tensor(rows), Tensor(columns)]

    assert found.tolist() == x[:, rows, columns].tolist()


def test_index_tensors_apart_stand_in_front():
    x = np.arange(24).reshape(2, 3, 4)
    blocks, columns = np.array([1, 0]), np.array([3, 2])

    found = Tensor(x)[Tensor(blocks), :, Tensor(columns)]

    assert found.tolist() == x[blocks, :, columns].tolist()


def test_lists_and_arrays_are_index_tensors():
    x = Tensor(TABLE)

    assert x[[2, 0]].tolist() == TABLE[[2, 0]].tolist()
    assert x[np.array([[1, -1]])].tolist() == TABLE[[[1, -1]]].tolist()
    assert x[[]].shape == (0, 5)


def test_a_mask_chooses_the_elements_where_it_holds():
    x = Tensor(TABLE)

    assert x[x > 3].tolist() == TABLE[TABLE > 3].tolist()
    assert x[Tensor([True, False] * 6), 1].tolist() == TABLE[::2, 1].tolist()
    assert x.masked_select(x[0] > 2).tolist() == TABLE[:, TABLE[0] > 2].reshape(-1).tolist()
    assert x[x > 99].tolist() == []


def test_nonzero_lists_places():
    assert Tensor([[0, 3], [0, 0], [-1, 2]]).nonzero().tolist() == [[0, 1], [2, 0], [2, 1]]


def test_one_hot():
    assert Tensor([[0, 2]]).one_hot(4).tolist() == [[[1, 0, 0, 0], [0, 0, 1, 0]]]
    assert Tensor([1, 0]).one_hot().tolist() == [[0, 1], [1, 0]]


# Out of range.
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", [12, -13, 2**40, -(2**63)])
def test_an_index_out_of_range_raises_at_the_host_read(row, device):
    table = Tensor(TABLE, device=device)
    found = table[Tensor([0, row], device=device)].realize()

    with pytest.raises(IndexOutOfRange, match=f"index: an index is out of range: {row} on axis 0"):
        found.tolist()


def test_any_host_read_tells_of_it_once():
    other = Tensor([5.0])
    Tensor(TABLE)[Tensor([12])].realize()

    with pytest.raises(IndexError):
        other.tolist()
    assert other.tolist() == [5.0]


def test_a_host_read_before_the_computation_tells_nothing():
    found = Tensor(TABLE)[Tensor([12])]

    assert Tensor([5.0]).tolist() == [5.0]
    with pytest.raises(IndexError):
        found.sum().item()


def test_memory_beyond_the_axis_is_not_read():
    found = Tensor(TABLE).index_select(0, Tensor([10**12, -(10**12)])).realize()

    with pytest.raises(IndexError):
        found.tolist()
    assert found.tolist() == TABLE[[11, 0]].tolist()


def test_many_unread_realizations_are_told_of_in_time():
    table, row = Tensor(TABLE), Tensor([12])

    with pytest.raises(IndexError):
        for _ in range(400):
            table[row].realize()


def test_indices_that_are_proven_inside_are_not_checked():
    table = Tensor(TABLE)
    proven = (table[Tensor.arange(12)], table[Tensor(ROWS) % 12], table[table.argmax(0)])

    assert not any(node.op is Op.CHECK for each in proven for node in walk((each.uop,)))


def test_a_range_of_several_axes_is_checked_axis_by_axis():
    table = Tensor(TABLE)

    with pytest.raises(IndexError, match="5 on axis 1 of extent 5"):
        table[Tensor([0]), Tensor([5])].tolist()


def test_empty_indices_need_no_elements():
    nothing = Tensor.zeros(0, 3)

    assert nothing[Tensor.zeros(0, dtype=dtypes.int64)].shape == (0, 3)
    assert checked("test", Tensor.zeros(0, dtype=dtypes.int32).uop, 0, 0).shape == (0,)
    with pytest.raises(IndexOutOfRange):
        nothing[Tensor([0])]
