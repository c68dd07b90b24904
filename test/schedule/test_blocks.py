"""A sum over blocks of k, whose sums of products are scaled, is one contraction on Hopper alone."""

import numpy as np
import pytest
from schedule.reading import decisions_of, interpreted, kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.target import CPU_AVX512, SM80, SM90A

E4M3, I8, F16, F32 = dtypes.float8_e4m3fn, dtypes.int8, dtypes.float16, dtypes.float32


def leaf(*shape, dtype=F32):
    return Tensor.zeros(*shape, dtype=dtype).realize()


def sums_of(dtype=E4M3, extent=128, wide=F32, blocks=2, m=8, n=16):
    """The sums of the products of each block of k, (blocks, m, n)."""
    x = leaf(m, blocks, extent, dtype=dtype).permute(1, 0, 2).to(wide)
    w = leaf(n, blocks, extent, dtype=dtype).permute(1, 2, 0).to(wide)
    return x @ w


def scaled(partial):
    return (partial.float() * leaf(len(partial), 8, 1)).sum(0)


def count(*tensors, target=SM90A, fuse=None):
    return len(kernels_of(*tensors, target=target, fuse=fuse))


def test_the_sum_over_the_blocks_is_the_contraction():
    (kernel,) = kernels_of(scaled(sums_of()), target=SM90A)

    (outer,) = [node for node in walk((kernel.sink,)) if node.op is Op.REDUCE]
    assert kernel.contraction.extents == (2, 8, 16, 128)
    assert kernel.contraction.batch == outer.operands[1:]
    assert decisions_of(scaled(sums_of()), kind="contract", target=SM90A) == [
        "contract sum of products: batch=1 m=8 n=16 k=256; a e4m3, b e4m3, summed in f32 for each "
        "128 values of k, whose sums are scaled and added up."
    ]


@pytest.mark.parametrize(
    ("dtype", "extent", "wide", "kernels"),
    [
        *((E4M3, 128, F32, 1), (E4M3, 256, F32, 2), (E4M3, 64, F32, 2)),
        *((I8, 128, dtypes.int32, 1), (I8, 384, dtypes.int32, 1), (I8, 96, dtypes.int32, 2)),
        *((F16, 64, F32, 1), (F16, 128, F32, 1), (F16, 32, F32, 2), (F32, 128, F32, 2)),
    ],
)
def test_blocks_are_whole_stages_of_what_the_instructions_take(dtype, extent, wide, kernels):
    assert count(scaled(sums_of(dtype, extent, wide))) == kernels


@pytest.mark.parametrize("target", [CPU_AVX512, SM80], ids=lambda each: each.name)
def test_other_machines_store_the_sums_of_each_block(target):
    assert count(scaled(sums_of()), target=target) == 2


@pytest.mark.parametrize(("fuse", "kernels"), [(1, 2), (2, 1), (3, 1)])
def test_it_is_a_fusion_of_folds(fuse, kernels):
    assert count(scaled(sums_of()), fuse=fuse) == kernels


def test_sums_that_somebody_else_reads_are_stored():
    partial = sums_of()

    assert count(scaled(partial), partial) == 2
    assert count(scaled(partial), partial.exp().sum(2)) == 3


def test_one_block_has_an_epilogue():
    (kernel,) = kernels_of(scaled(sums_of(blocks=1)), target=SM90A)

    assert Op.REDUCE not in [node.op for node in walk((kernel.sink,))]


def test_another_fold_is_not_one_over_blocks():
    partial = sums_of()

    assert count((partial * leaf(2, 8, 1)).sum(1)) == 2  # over m
    assert count((partial * leaf(2, 8, 1)).amax(0)) == 2
    assert count((partial * partial.sum(1, keepdim=True)).sum(0)) == 3  # reads another fold


def test_the_work_on_a_sum_may_be_anything_that_reads_it_alone():
    partial = sums_of()

    assert count((partial * partial).sum(0)) == 1
    assert count((partial.exp() * leaf(2, 8, 1) + leaf(2, 1, 16)).sum(0)) == 1


def test_a_factor_that_was_asked_for_too_is_read_as_it_was():
    x = leaf(8, 2, 128, dtype=E4M3).float()
    w = leaf(16, 2, 128, dtype=E4M3).permute(1, 2, 0).float()

    kernels = kernels_of(scaled(x.permute(1, 0, 2) @ w), x, target=SM90A)

    (product,) = [each for each in kernels if each.contraction is not None]
    assert [each.dtype for each in product.contraction.node.operands[:2]] == [E4M3, E4M3]


def test_computed_scales_are_stored_once():
    scales = leaf(8, 1024, 1).exp()

    kernels = kernels_of((sums_of(blocks=8, m=1024, n=1024) * scales).sum(0), target=SM90A)

    assert [each.contraction is None for each in kernels] == [True, False]


def test_the_kernel_has_the_values_of_the_graph(seed):
    rng = np.random.default_rng(seed)
    x, w = [Tensor(rng.integers(-9, 9, (rows, 3, 128)).astype(np.int8)) for rows in (4, 5)]
    scales = Tensor(rng.integers(-3, 4, (3, 4, 5)).astype(np.float32))
    partial = x.permute(1, 0, 2).int() @ w.permute(1, 2, 0).int()
    result = (partial.float() * scales).sum(0)
    (kernel,) = kernels_of(result, target=SM90A)
    arrays = [np.zeros(20, np.float32), *[each.numpy().reshape(-1) for each in (x, w, scales)]]

    run_kernel(kernel, arrays)

    np.testing.assert_array_equal(arrays[0].reshape(4, 5), interpreted(result)[0])
    blocks = np.einsum("mbk,nbk->bmn", x.numpy().astype(int), w.numpy().astype(int))
    np.testing.assert_array_equal(arrays[0].reshape(4, 5), (blocks * scales.numpy()).sum(0))
