"""Short folds for a GPU: computed by the kernel that reads each result once, and stored else."""

import numpy as np
import pytest
from schedule.reading import decisions_of, kernels_of

from tinytensor import Tensor, autograd
from tinytensor.nn import functional
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.target import CPU_AVX512, SM90A


def leaf(*shape):
    return Tensor.zeros(*shape).contiguous().realize()


def folds_of(kernel):
    return [node for node in walk((kernel.sink,)) if node.op is Op.REDUCE]


def gradient(x, weight, g, step):
    result = functional.conv2d(x, weight, groups=x.shape[1], stride=step, padding=1)
    return autograd.grad(result, [x], g)[0]


def comb_kernels(target, step=2, side=3):
    x, weight = leaf(2, 4, 12, 12).requires_grad_(), leaf(4, 1, side, side)
    places = (12 + 2 - side) // step + 1
    return kernels_of(gradient(x, weight, leaf(2, 4, places, places), step), target=target)


def test_the_gradient_of_windows_that_step_is_one_kernel():
    (kernel,) = comb_kernels(SM90A)

    assert len(folds_of(kernel)) == 3  # of 2, 2 and 4 taps; the fourth comb is one product
    assert len(kernel.params) == 3


def test_a_cpu_stores_each_comb():
    assert len(comb_kernels(CPU_AVX512)) == 5


def test_what_is_one_product_each_is_stored():
    assert len(comb_kernels(SM90A, step=3)) == 10


def pooled(x):
    return x.reshape(8, 6, 4).sum(2)


def padded(sums):
    return sums.pad((1, 1))


@pytest.mark.parametrize(
    "compute, kernels",
    [
        (lambda x: [padded(pooled(x))], 1),
        (lambda x: [padded(x.reshape(4, 3, 16).sum(2))], 1),
        (lambda x: [padded(x.reshape(2, 3, 32).sum(2))], 2),  # too many elements
        (lambda x: [padded(pooled(x)), pooled(x)], 2),  # it was asked for
        (lambda x: [padded(pooled(x)), pooled(x).flip(0).pad((0, 2))], 3),  # read twice
        (lambda x: [pooled(x)[:, None].expand(8, 5, 6).flip(0)], 2),  # each result again and again
        (lambda x: [padded(pooled(x)).reshape(8, 2, 4).sum(2)], 2),  # by a fold
    ],
    ids=["pad", "sixteen", "more", "asked for", "two readers", "repeated", "folded"],
)
def test_only_short_folds_that_are_read_once_move(compute, kernels):
    results = compute(leaf(192))
    assert len(kernels_of(*results, target=SM90A)) == kernels


def test_one_fold_a_kernel_where_nothing_is_joined():
    assert len(kernels_of(padded(pooled(leaf(192))), fuse=1, target=SM90A)) == 2


def test_many_folds_of_one_reader_are_stored():
    parts = [pooled(leaf(192)) * number for number in range(5)]

    assert len(kernels_of(Tensor.cat(parts[:4]), target=SM90A)) == 1
    assert len(kernels_of(Tensor.cat(parts), target=SM90A)) > 5


def test_it_is_said():
    told = decisions_of(padded(pooled(leaf(192))), kind="fuse", target=SM90A)

    assert told == [
        "fuse reduce[add] f32[8,6,1]: each result of a short fold is read once, and computed there."
    ]


@pytest.mark.parametrize("extents", [(8, 12), (7, 9)], ids=str)
@pytest.mark.parametrize("step, side", [(2, 3), (2, 5), (3, 5)])
def test_each_element_has_the_products_of_its_own_taps(extents, step, side, planned_for_a_gpu):
    random = np.random.default_rng(5)
    weight = random.integers(-3, 4, (3, 1, side, side)).astype(np.float32)
    places = [(extent + 2 - side) // step + 1 for extent in extents]
    g = random.integers(-3, 4, (2, 3, *places)).astype(np.float32)
    expected = np.zeros((2, 3, extents[0] + 2 + side, extents[1] + 2 + side))
    for i, j in np.ndindex(*places):
        reached = (..., slice(i * step, i * step + side), slice(j * step, j * step + side))
        expected[reached] += g[..., i, j, None, None] * weight[:, 0]

    x = Tensor.zeros(2, 3, *extents).requires_grad_()
    found = gradient(x, Tensor(weight), Tensor(g), step).numpy()

    inside = expected[..., 1 : 1 + extents[0], 1 : 1 + extents[1]]
    np.testing.assert_array_equal(found, inside.astype(np.float32))
