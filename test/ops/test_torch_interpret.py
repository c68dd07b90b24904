"""Compares the meaning of ops with PyTorch's, over every float16 and every pair of bytes."""

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.ops.interpret import evaluate, from_storage, to_storage
from tinytensor.ops.op import Op

torch = pytest.importorskip("torch")

BITS = np.arange(2**16, dtype=np.uint16)
HALVES = {
    dtypes.float16: (BITS.view(np.float16), torch.from_numpy(BITS.view(np.float16).copy())),
    dtypes.bfloat16: (
        from_storage(BITS, dtypes.bfloat16),
        torch.from_numpy(BITS.view(np.int16).copy()).view(torch.bfloat16),
    ),
}
BYTES = np.arange(-128, 128, dtype=np.int8)


def bits_without_nan(values, dtype):
    """The stored bits, every NaN as one and the same."""
    stored = to_storage(values, dtype).view(np.uint16)
    return np.where(np.isnan(values), 0x7FFF, stored)


def torch_bits(tensor):
    stored = tensor.view(torch.int16).numpy().view(np.uint16)
    return np.where(torch.isnan(tensor).numpy(), 0x7FFF, stored)


UNARY = {
    Op.NEG: torch.neg,
    Op.SQRT: torch.sqrt,
    Op.FLOOR: torch.floor,
    Op.TRUNC: torch.trunc,
}


@pytest.mark.parametrize("dtype", HALVES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_an_exact_function_of_every_half_is_pytorch_s(op, dtype):
    values, tensor = HALVES[dtype]

    found = evaluate(op, dtype, values)

    assert np.array_equal(bits_without_nan(found, dtype), torch_bits(UNARY[op](tensor)))


BINARY = {
    Op.ADD: torch.add,
    Op.SUB: torch.sub,
    Op.MUL: torch.mul,
    Op.DIV: torch.div,
    Op.MOD: torch.remainder,
}


@pytest.mark.parametrize("dtype", HALVES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
@pytest.mark.parametrize("other", [0x0000, 0x8001, 0x3C00, 0xC248, 0x7BFF, 0x7F80])
def test_arithmetic_of_every_half_is_pytorch_s(op, dtype, other):
    values, tensor = HALVES[dtype]

    found = evaluate(op, dtype, values, values[other : other + 1])

    divisor = tensor[other : other + 1].expand(2**16).contiguous()
    # PyTorch's vectorized remainder gives NaN where the quotient overflows float32; its scalar one
    # gives what ours does.
    overflows = torch.isinf(tensor.float() / divisor.float()).numpy() & np.isfinite(values)
    kept = ~overflows | (op is not Op.MOD) | (values[other] == 0)
    expected = torch_bits(BINARY[op](tensor, divisor))
    assert np.array_equal(bits_without_nan(found, dtype)[kept], expected[kept])


@pytest.mark.parametrize("dtype", HALVES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", ["float32", "float64", "bool"])
def test_a_cast_of_every_half_is_pytorch_s(dtype, name):
    values, tensor = HALVES[dtype]

    found = evaluate(Op.CAST, getattr(dtypes, name), values)

    assert np.array_equal(found, tensor.to(getattr(torch, name)).numpy(), equal_nan=name != "bool")


@pytest.mark.parametrize("dtype", HALVES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("source", [np.float32, np.int32, np.int64])
def test_a_cast_to_a_half_is_pytorch_s(dtype, source, seed):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, 100_000, dtype=np.uint32)
    wide = bits.view(np.float32) if source is np.float32 else bits.view(np.int32).astype(source)

    found = evaluate(Op.CAST, dtype, wide)

    expected = torch.from_numpy(wide).to(getattr(torch, dtype.name))
    assert np.array_equal(bits_without_nan(found, dtype), torch_bits(expected))


INTEGER = {
    Op.ADD: torch.add,
    Op.MUL: torch.mul,
    Op.MAX: torch.maximum,
    Op.MIN: torch.minimum,
    Op.AND: torch.bitwise_and,
    Op.XOR: torch.bitwise_xor,
}
DIVISION = {
    Op.FLOORDIV: lambda x, y: torch.div(x, y, rounding_mode="floor"),
    Op.MOD: torch.remainder,
}


@pytest.mark.parametrize("op", [*INTEGER, *DIVISION], ids=lambda op: op.name)
def test_arithmetic_of_every_pair_of_bytes_is_pytorch_s(op):
    # PyTorch raises for a division by zero, and traps at -128 / -1: those are ours to define.
    divisors = BYTES[(BYTES != 0) & (BYTES != -1)] if op in DIVISION else BYTES
    x, y = np.broadcast_arrays(BYTES[:, None], divisors[None, :])

    found = evaluate(op, dtypes.int8, x, y)

    expected = (INTEGER | DIVISION)[op](torch.from_numpy(x.copy()), torch.from_numpy(y.copy()))
    assert np.array_equal(found, expected.numpy())


@pytest.mark.parametrize("op", [Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.ERF], ids=str)
def test_a_function_in_float32_is_near_pytorch_s_in_float64(op):
    values = HALVES[dtypes.float16][0].astype(np.float32)
    values = values[np.isfinite(values)]

    found = evaluate(op, dtypes.float32, values).astype(np.float64)

    exact = getattr(torch, op.name.lower())(torch.from_numpy(values.astype(np.float64))).numpy()
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        gap = np.spacing(np.abs(rounded)).astype(np.float64)
        close = np.abs(found - exact) <= 0.5001 * gap
    assert np.all(close | (found == rounded) | (np.isnan(found) & np.isnan(exact)))
