"""Small programs that tensor compilers have got wrong, each on every device, fused and unfused."""

import math
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tinytensor import Tensor, config, dtypes

PLACES = [(device, fuse) for device in ("CPU", "PYTHON") for fuse in (0, 3)]
SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
SCRIPT = """
from tinytensor import Tensor
x = Tensor([[1.0, 2.0], [3.0, 4.0]])
print((x @ x + x.sum(1)).tolist(), x.amax().item())
"""
PRINTED = "[[10.0, 17.0], [18.0, 29.0]] 4.0\n"


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-fuse{place[1]}")
def device(request):
    name, fuse = request.param
    with config(fuse=fuse):
        yield name


def assert_bits(result, expected):
    """The same values, and the same signs of zeros; which bits a NaN has does not count."""
    np.testing.assert_array_equal(result, expected)
    same_sign = np.signbit(result) == np.signbit(expected)
    assert (same_sign | np.isnan(expected)).all()


def ends_of(dtype):
    """Values at both ends of an integer dtype, and around 0."""
    near = np.arange(-9, 10)
    ends = [dtype.min + each for each in range(9)] + [dtype.max - each for each in range(9)]
    return np.array([*near, *ends], dtype.value_numpy)


def test_a_negation_inside_a_maximum_is_kept(device):
    x = Tensor([2, 2], dtype=dtypes.int32, device=device)

    assert (~x).argmax().item() == 0


def test_a_product_with_zero_is_not_folded_away(device):
    x = Tensor([math.inf, math.nan, -1.0, 0.0], device=device)

    assert_bits((x * 0).numpy(), [math.nan, math.nan, -0.0, 0.0])


def test_a_quotient_of_equal_operands_is_not_one(device):
    x = Tensor([0.0, 2.0], device=device)

    np.testing.assert_array_equal((x / x).numpy(), [math.nan, 1.0])


def test_a_negative_remainder_takes_the_sign_of_the_divisor(device):
    shift = Tensor([-1], device=device)

    position = (Tensor.arange(8, device=device) - shift) % 8

    assert position.tolist() == [1, 2, 3, 4, 5, 6, 7, 0]


def test_a_pair_of_casts_rounds(device):
    x = Tensor([65504.0, 65519.0, 65520.0, 65536.0], device=device)

    assert x.half().float().tolist() == [65504.0, 65504.0, math.inf, math.inf]


OUT_OF_RANGE = [(math.nan, 0), (math.inf, 2**31 - 1), (-math.inf, -(2**31)), (3e9, 2**31 - 1)]


@pytest.mark.parametrize(("value", "expected"), OUT_OF_RANGE, ids=str)
def test_a_float_out_of_range_saturates_as_a_constant_too(value, expected, device):
    constant = Tensor.full((2,), value, device=device)
    read = Tensor([value, value], device=device)

    assert constant.int().tolist() == read.int().tolist() == [expected, expected]


def test_an_unsigned_negation_wraps_before_it_is_compared(device):
    u = Tensor([6], dtype=dtypes.uint8, device=device)

    assert (-u).tolist() == [250]
    assert (-u < 4).tolist() == [False]


def test_int64_values_are_computed_in_64_bits(device):
    product = Tensor.arange(11, device=device) * 10**9

    assert product.tolist() == [each * 10**9 for each in range(11)]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_an_offset_beyond_2_to_the_31_is_reached(device):
    row = np.random.default_rng(0).integers(-100, 100, 2**22).astype(np.int8)

    stored = Tensor(row, device=device).expand(513, 2**22).realize()

    np.testing.assert_array_equal(stored[-1].numpy(), row)
    np.testing.assert_array_equal(stored[511].numpy(), row)


@pytest.mark.parametrize(("values", "first"), [([math.nan, 4.6], 0), ([1.0, math.nan, 3.0], 1)])
def test_a_nan_is_the_extreme(values, first, device):
    x = Tensor(values, device=device)

    assert x.argmax().item() == x.argmin().item() == first
    assert math.isnan(x.amax().item())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_border_may_be_no_finite_number(value, device):
    padded = Tensor([[1.0, 2.0]], device=device).pad((1, 1, 1, 1), value=value)

    expected = np.full((3, 4), value)
    expected[1, 1:3] = [1.0, 2.0]
    np.testing.assert_array_equal(padded.numpy(), expected)


WIDTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129, 511, 513, 1025, 2049)


@pytest.mark.parametrize("width", WIDTHS)
def test_idle_lanes_do_not_join_a_reduction(width, device):
    x = np.random.default_rng(width).integers(-4, 5, (3, width)).astype(np.float32)
    x[:, 1::5] = -math.inf
    wide = x.astype(np.float64)
    lowered = wide - wide.max(1, keepdims=True)
    expected = lowered - np.log(np.exp(lowered).sum(1, keepdims=True))

    result = Tensor(x, device=device).log_softmax(-1).numpy()

    epsilon = dtypes.float32.epsilon  # n additions and 2 ulp each of exp and log
    np.testing.assert_allclose(result, expected, rtol=4 * epsilon, atol=(width + 4) * epsilon)


def test_a_masked_element_has_no_share(device):
    assert Tensor([0.0, -math.inf], device=device).log_softmax(0).tolist() == [0.0, -math.inf]


def test_reductions_of_nothing(device):
    x = Tensor.zeros(0, 2, device=device)

    assert x.amax(1).shape == x.max(1).values.shape == (0,)
    assert x.sum(0).tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(x.mean(0).numpy(), [math.nan, math.nan])
    with pytest.raises(IndexError):
        x.max(0)


def test_both_sides_of_an_equality_are_rounded(device):
    values = np.random.default_rng(1).standard_normal((64, 33)).astype(np.float32)
    s = Tensor(values, device=device).bfloat16() / 0.7

    hits = (s == s.max(-1, keepdim=True).values).sum(-1)

    assert (hits.numpy() >= 1).all()


def test_halves_accumulate_wider(device):
    ones = Tensor.ones(70000, dtype=dtypes.float16, device=device).realize()
    large = Tensor([32000.0] * 4 + [-32000.0] * 4, dtype=dtypes.float16, device=device)

    assert ones.mean().item() == 1.0
    assert large.sum().item() == 0.0


@pytest.mark.parametrize("asked", [("z", "e", "x"), ("x", "z", "e"), ("e", "x", "z")], ids="".join)
def test_a_name_bound_anew_does_not_change_earlier_readers(asked, device):
    x, y = Tensor([1.0], device=device), Tensor([2.0], device=device)
    e = x + 10
    x *= 2
    y += x
    tensors = {"z": y + e, "e": e, "x": x}

    results = {name: tensors[name].item() for name in asked}

    assert results == {"z": 15.0, "e": 11.0, "x": 2.0}


@pytest.mark.parametrize("time", range(3))
def test_a_batch_axis_is_not_lost(time, device):
    rng = np.random.default_rng(time)
    a, b = (rng.integers(-5, 6, shape).astype(np.float32) for shape in ((2, 3, 4), (2, 4, 5)))

    result = (Tensor(a, device=device) @ Tensor(b, device=device)).numpy()

    np.testing.assert_array_equal(result, a @ b)


def test_narrow_integers_wrap_before_they_are_read(device):
    x = Tensor([100], dtype=dtypes.int8, device=device)

    assert (x + x).int().tolist() == [-56]
    assert (x + x > 0).tolist() == [False]


@pytest.mark.parametrize("dtype", SIGNED, ids=lambda dtype: dtype.name)
def test_integer_rewrites_respect_the_wrap(dtype, device):
    values = ends_of(dtype)
    x = Tensor(values, device=device)
    with np.errstate(over="ignore"):
        wrapped = values * values.dtype.type(3)
        following = values + values.dtype.type(1)
        negated = -values

    np.testing.assert_array_equal(((x * 3) // 3).numpy(), wrapped // values.dtype.type(3))
    np.testing.assert_array_equal((-x // -4).numpy(), negated // values.dtype.type(-4))
    np.testing.assert_array_equal((x + 1 > x).numpy(), following > values)


@pytest.mark.parametrize("dtype", SIGNED[1:], ids=lambda dtype: dtype.name)
def test_a_narrowing_cast_comes_before_the_comparison(dtype, device):
    values = ends_of(dtype)

    result = Tensor(values, device=device).cast(dtypes.int8) > 3

    np.testing.assert_array_equal(result.numpy(), values.astype(np.int8) > 3)


def test_a_shift_happens_in_the_dtype_written(device):
    x = Tensor([0.0, 3.0], device=device)

    assert (x.argmax().cast(dtypes.int64) >> 41).item() == 0
    assert ((x.argmax().cast(dtypes.int64) + 2**41) >> 41).item() == 1


def test_a_product_happens_in_the_dtype_written(device):
    x = Tensor([2**20, -(2**20) - 1, 46341], dtype=dtypes.int32, device=device)

    with np.errstate(over="ignore"):
        expected = (x.numpy() * x.numpy()).astype(np.int64)
    np.testing.assert_array_equal((x * x).long().numpy(), expected)


def test_a_comparison_with_nan_is_no_negated_comparison(device):
    a, b = Tensor([math.nan], device=device), Tensor([1.0], device=device)

    assert [(a <= a).item(), (a <= b).item(), (b <= a).item()] == [False, False, False]
    assert [(~(b < a)).item(), (a != a).item()] == [True, True]


def test_a_nan_is_kept_on_either_side(device):
    zero, nan = Tensor([0.0], device=device), Tensor([math.nan], device=device)
    results = [
        *(zero.maximum(nan), nan.maximum(zero), zero.minimum(nan), nan.minimum(zero)),
        *(nan.relu(), nan.softmax(0), nan.clamp(0, 1)),
    ]

    assert [math.isnan(each.item()) for each in results] == [True] * 7


def test_the_users_array_is_not_shared(device):
    array = np.array([1.0, 2.0], np.float32)
    tensor = Tensor(array, device=device)
    shown = tensor.realize().numpy()

    array[0] = 7.0
    shown[1] = 8.0

    assert tensor.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("exponent", [0, 1, 7, 13])
def test_an_integer_power_is_exact(exponent, device):
    values = [5, -5, -3, 2, 0]

    result = Tensor(values, device=device) ** exponent

    assert result.tolist() == [each**exponent for each in values]


def test_an_int32_power_wraps(device):
    result = Tensor([3, -3], dtype=dtypes.int32, device=device) ** 21

    assert result.tolist() == [(3**21 + 2**31) % 2**32 - 2**31, (2**31 - 3**21) % 2**32 - 2**31]


def test_a_remainder_of_halves_is_rounded_once(device):
    tenth = float(np.float16(0.1))

    result = Tensor([3.0], dtype=dtypes.float16, device=device) % 0.1

    assert result.item() == np.float16(math.fmod(3.0, tenth))


def test_a_variance_of_halves_does_not_overflow_inside(device):
    x = np.array([60000.0, 60032.0, 60064.0, 60000.0], np.float16)

    result = Tensor(x, device=device).var(0).item()

    assert result == np.float16(x.astype(np.float64).var(ddof=1))


def test_a_wider_softmax_is_not_rounded_to_the_half(device):
    x = Tensor([0.0, 1.0, 2.0], dtype=dtypes.float16, device=device)

    result = x.softmax(0, dtype=dtypes.float32).tolist()

    assert result == x.float().softmax(0).tolist()
    assert result != x.softmax(0).tolist()


def test_a_bool_is_not_negated(device):
    with pytest.raises(TypeError):
        -Tensor([True], device=device)


def test_a_bool_counts_as_0_or_1(device):
    x = Tensor([True, False, True], device=device)

    expected = math.log(2 * math.e + 1)
    assert x.logsumexp(0).item() == pytest.approx(expected, rel=8 * dtypes.float32.epsilon)


def test_a_bool_joins_a_bfloat16(device):
    flags = Tensor([True, False], device=device)
    values = Tensor([1.5, -0.0], dtype=dtypes.bfloat16, device=device)

    joined = Tensor.cat([flags, values])

    assert joined.dtype is dtypes.bfloat16
    assert_bits(joined.numpy(), [1.0, 0.0, 1.5, -0.0])


def test_signed_zeros_are_kept(device):
    zero = Tensor([-0.0], device=device)

    assert_bits(abs(zero).numpy(), [0.0])
    assert_bits(Tensor([-0.25], device=device).round().numpy(), [-0.0])
    assert_bits(Tensor.cat([zero, zero]).numpy(), [-0.0, -0.0])
    assert_bits((zero**-1).numpy(), [-math.inf])


def test_an_infinity_is_not_subtracted_from_itself(device):
    assert Tensor([0.0, math.inf], device=device).logsumexp(0).item() == math.inf


def test_a_long_python_loop_of_numbers(device):
    x = Tensor([1.0, 2.0], device=device)
    for step in range(200):
        x = x * 0.5 + step

    expected = np.array([1.0, 2.0], np.float32)
    for step in range(200):
        expected = expected * np.float32(0.5) + np.float32(step)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_many_tensors_are_stacked(device):
    parts = [Tensor([float(each), -0.0], device=device) for each in range(120)]

    stacked = Tensor.stack(parts, dim=1)

    assert_bits(stacked.numpy(), [[float(each) for each in range(120)], [-0.0] * 120])


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ([3.0, math.nan, 1.0, 2.0], [2, 3, 0, 1]),
        ([1.0, 0.0, 1.0, 0.0], [1, 3, 0, 2]),
        ([5.0, 5.0, 5.0], [0, 1, 2]),
        ([0.0, -0.0, 0.0, -1.0], [3, 0, 1, 2]),
    ],
)
def test_a_sort_is_a_stable_permutation(values, order, device):
    x = Tensor(values, device=device)
    found, indices = x.sort()

    assert indices.tolist() == x.argsort().tolist() == order
    assert x.topk(len(values), largest=False).indices.tolist() == order
    assert_bits(found.numpy(), np.array(values)[order])


def test_a_long_sort_is_built_in_seconds():
    keys = np.random.default_rng(0).integers(0, 50_000, 100_000).astype(np.float32)

    found = Tensor(keys).argsort().numpy()

    np.testing.assert_array_equal(found, np.argsort(keys, kind="stable"))


def test_0d_tensors_have_one_axis_to_fold(device):
    x = Tensor(2.5, device=device)

    assert x.transpose(0, 0).item() == 2.5
    assert x.argmax(-1).item() == 0
    assert x.softmax(-1).item() == 1.0
    assert x.max(0).values.shape == x.max(0).indices.shape == ()
    assert x.cumsum(0).item() == x.sort().values.item() == x.topk(1).values.item() == 2.5
    assert x.sort().indices.shape == x.topk(1).indices.shape == ()


def run_script(cache):
    environment = {**os.environ, "TT_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, text=True, stdout=subprocess.PIPE
    )


def test_processes_fill_one_cache_at_once(tmp_path):
    running = [run_script(tmp_path / "cache") for _ in range(8)]

    printed = [each.communicate()[0] for each in running]

    assert printed == [PRINTED] * 8


def test_truncated_files_are_made_again(tmp_path):
    cache = tmp_path / "cache"
    run_script(cache).communicate()
    files = list(cache.iterdir())
    for file in files:
        file.write_bytes(file.read_bytes()[:-20])

    printed = run_script(cache).communicate()[0]

    assert files
    assert printed == PRINTED


@pytest.mark.parametrize("name", ["CPU", "PYTHON"])
def test_a_forked_child_computes(name):
    x = Tensor([1.0, 2.0], device=name).realize()
    child = os.fork()
    if child == 0:
        os._exit(0 if (x * 3 + 1).tolist() == [4.0, 7.0] else 1)

    status = os.waitpid(child, 0)[1]

    assert status == 0
    assert (x * 3 + 2).tolist() == [5.0, 8.0]


def test_threads_realize_different_graphs():
    wrong = []

    def work(number):
        for step in range(20):
            x = np.arange(1.0, 2 + (number + step) % 5, dtype=np.float32)
            tensor = Tensor(x, device="CPU" if number % 2 else "PYTHON")
            if ((tensor * number).sum() + step).item() != (x * number).sum() + step:
                wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
