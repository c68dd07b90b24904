"""PHILOX is the published generator, and what legalize writes for it gives the same bits."""

import numpy as np
import pytest
from codegen.machine import elementwise_kernel, empty, run_c, targets

from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.interpret import evaluate
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, const

U64 = dtypes.uint64
ONES = 2**64 - 1

# Philox4x32-10 of kat_vectors in Random123 1.14, the library of the paper's authors: counter words
# 0 to 3 and key words 0 and 1, here in pairs, and the first two words of the result.
KNOWN_ANSWERS = [
    (0, 0, 0, 0xE169C58D_6627E8D5),
    (ONES, ONES, ONES, 0x41C83B0E_408F276D),
    (0x85A308D3_243F6A88, 0x03707344_13198A2E, 0x299F31D0_A4093822, 0x94FDCCEB_D16CFE09),
]


def philox(operands):
    arrays = [np.asarray(each, np.uint64) for each in operands]
    return evaluate(Op.PHILOX, U64, *arrays)


@pytest.mark.parametrize("vector", KNOWN_ANSWERS, ids=["zeros", "ones", "pi"])
def test_the_interpreter_gives_the_published_bits(vector):
    *operands, expected = vector

    assert int(philox(operands)) == expected


@pytest.mark.parametrize("chosen", targets(), ids=lambda each: f"{each.vector_bytes}-bytes")
@pytest.mark.parametrize("has_lanes", [False, True], ids=["scalar", "lanes"])
def test_c_gives_the_interpreter_s_bits(has_lanes, chosen, seed):
    lanes = chosen.vector_bytes // U64.itemsize if has_lanes else 1
    rng = np.random.default_rng(seed)
    operands = [rng.integers(0, 2**64, 64, np.uint64) for _ in range(3)]
    for number, vector in enumerate(KNOWN_ANSWERS):
        for array, value in zip(operands, vector, strict=False):
            array[number] = value
    made = empty(64, U64)
    kernel = elementwise_kernel("philox", [U64] * 3, [(U64, random_bits)], lanes, 64)

    run_c(kernel, [*operands, made], chosen)

    assert made[:3].tolist() == [vector[-1] for vector in KNOWN_ANSWERS]
    assert made.tolist() == philox(operands).tolist()


def random_bits(*operands):
    return UOp(Op.PHILOX, operands[0].dtype, operands)


def test_other_dtypes_are_refused():
    word = const(dtypes.uint32, 1)

    with pytest.raises(InternalError) as caught:
        UOp(Op.PHILOX, dtypes.uint32, (word, word, word))

    assert str(caught.value) == (
        "philox: gives uint64: dtype uint32, operands (uint32(), uint32(), uint32()), attrs None."
    )
