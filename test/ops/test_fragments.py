import numpy as np
import pytest

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs_blocks import TileMmaAttrs
from tinytensor.ops.fragments import (
    a_position,
    accumulator_position,
    accumulator_registers,
    b_position,
    c_position,
    ldmatrix_position,
    mma_shape,
    place_along,
    words_of,
)
from tinytensor.ops.tile import place_in_stage

# Cells of the figures of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type":
# (row, column) of the matrix -> (thread, element).
A_FIGURE = {
    **{(0, 0): (0, 0), (0, 1): (0, 1), (0, 2): (1, 0), (0, 7): (3, 1), (1, 0): (4, 0)},
    **{(0, 8): (0, 4), (0, 9): (0, 5), (7, 15): (31, 5), (7, 6): (31, 0)},
    **{(8, 0): (0, 2), (8, 1): (0, 3), (9, 4): (6, 2), (15, 7): (31, 3)},
    **{(8, 8): (0, 6), (15, 14): (31, 6), (15, 15): (31, 7)},
}
B_FIGURE = {
    **{(0, 0): (0, 0), (1, 0): (0, 1), (2, 0): (1, 0), (7, 0): (3, 1), (0, 1): (4, 0)},
    **{(8, 0): (0, 2), (9, 0): (0, 3), (15, 0): (3, 3), (15, 7): (31, 3), (6, 7): (31, 0)},
}
C_FIGURE = {
    **{(0, 0): (0, 0), (0, 1): (0, 1), (0, 2): (1, 0), (0, 7): (3, 1), (7, 7): (31, 1)},
    **{(8, 0): (0, 2), (8, 1): (0, 3), (15, 6): (31, 2), (15, 7): (31, 3), (3, 4): (14, 0)},
}
# "Register fragments for wgmma: matrix D", m64nN: (row, column) -> (thread, register).
WGMMA_D_FIGURE = {
    **{(0, 0): (0, 0), (0, 1): (0, 1), (0, 7): (3, 1), (0, 8): (0, 4), (0, 9): (0, 5)},
    **{(8, 0): (0, 2), (8, 9): (0, 7), (15, 7): (31, 3), (16, 0): (32, 0), (24, 0): (32, 2)},
    **{(48, 2): (97, 0), (63, 7): (127, 3), (63, 31): (127, 15), (0, 24): (0, 12)},
}
# "ldmatrix": the fragment of one 8x8 matrix, row 0 .. 7 of thread row-wise.
LDMATRIX_FIGURE = {(0, 0): (0, 0), (0, 1): (0, 1), (0, 2): (1, 0), (1, 0): (4, 0), (7, 7): (31, 1)}


@pytest.mark.parametrize(
    ("position", "figure"),
    [(a_position, A_FIGURE), (b_position, B_FIGURE), (c_position, C_FIGURE)],
    ids=["a", "b", "c"],
)
def test_fragments_of_m16n8k16_are_those_of_the_figures(position, figure):
    found = {cell: position(*held) for cell, held in figure.items()}

    assert found == {cell: cell for cell in figure}


# "Matrix Fragments for mma.m16n8k32", of 8-bit types.
BYTES_A_FIGURE = {
    **{(0, 0): (0, 0), (0, 3): (0, 3), (0, 4): (1, 0), (0, 15): (3, 3), (7, 15): (31, 3)},
    **{(8, 0): (0, 4), (15, 15): (31, 7), (0, 16): (0, 8), (0, 31): (3, 11), (8, 16): (0, 12)},
}
BYTES_B_FIGURE = {
    **{(0, 0): (0, 0), (3, 0): (0, 3), (4, 0): (1, 0), (15, 0): (3, 3), (0, 7): (28, 0)},
    **{(16, 0): (0, 4), (19, 0): (0, 7), (31, 7): (31, 7)},
}


# "Matrix Fragments for mma.m8n8k4 with .f64", and for m16n8k4 with .f64: one element a register.
DOUBLE_A_FIGURE = {
    **{(0, 0): (0, 0), (0, 3): (3, 0), (7, 3): (31, 0), (8, 0): (0, 1), (15, 3): (31, 1)},
}
DOUBLE_B_FIGURE = {(0, 0): (0, 0), (3, 0): (3, 0), (0, 7): (28, 0), (1, 1): (5, 0), (3, 7): (31, 0)}


@pytest.mark.parametrize(
    ("position", "figure"), [(a_position, DOUBLE_A_FIGURE), (b_position, DOUBLE_B_FIGURE)]
)
def test_fragments_of_doubles_are_those_of_the_figures(position, figure):
    found = {cell: position(*held, 1) for cell, held in figure.items()}

    assert found == {cell: cell for cell in figure}


@pytest.mark.parametrize("k_major", [True, False])
def test_lanes_that_read_together_meet_all_banks(k_major):
    """Eight lanes read 16 bytes each: of rows along k, or of rows along m."""
    tile = BlockBuilder("tile", [], dtypes.int32, (1, 1, 1), 32).tile(
        dtypes.float64, *((64, 16) if k_major else (16, 64))
    )
    lane = np.arange(32)
    for piece in range(2):
        row = place_along(mma_shape("m16n8k4.f64"), k_major, piece if k_major else 0, lane // 4)
        k = lane % 4 * 2 + (0 if k_major else piece)
        place = place_in_stage(tile, row, k) if k_major else place_in_stage(tile, k, row)

        chunks = (place * 8 // 16 % 8).reshape(4, 8)

        assert (np.sort(chunks) == np.arange(8)).all()


@pytest.mark.parametrize(
    ("position", "figure"), [(a_position, BYTES_A_FIGURE), (b_position, BYTES_B_FIGURE)]
)
def test_fragments_of_m16n8k32_are_those_of_the_figures(position, figure):
    found = {cell: position(*held, 4) for cell, held in figure.items()}

    assert found == {cell: cell for cell in figure}


@pytest.mark.parametrize("held", [2, 4])
@pytest.mark.parametrize(("position", "registers"), [(a_position, 4), (b_position, 2)])
def test_lanes_hold_each_element_of_an_operand_once(position, registers, held):
    count = registers * held

    places = {position(lane, element, held) for lane in range(32) for element in range(count)}

    assert len(places) == 32 * count


def test_ldmatrix_gives_the_figure_and_its_transpose():
    straight = {cell: ldmatrix_position(*held, False) for cell, held in LDMATRIX_FIGURE.items()}
    turned = {cell: ldmatrix_position(*held, True) for cell, held in LDMATRIX_FIGURE.items()}

    assert straight == {cell: cell for cell in LDMATRIX_FIGURE}
    assert turned == {cell: cell[::-1] for cell in LDMATRIX_FIGURE}


def test_a_warpgroups_accumulator_is_that_of_the_figure():
    attrs = TileMmaAttrs(0, "m64n32k16.f16", 4, 1, True, True)

    found = {
        cell: accumulator_position(attrs, 64, 32, *held) for cell, held in WGMMA_D_FIGURE.items()
    }

    assert found == {cell: cell for cell in WGMMA_D_FIGURE}


@pytest.mark.parametrize(
    ("instruction", "warps", "block"),
    [
        ("m16n8k16.f16", (1, 1), (16, 8)),
        ("m16n8k16.f16", (2, 2), (64, 32)),
        ("m16n8k16.bf16", (1, 4), (16, 64)),
        ("m64n32k16.f16", (4, 1), (128, 64)),
        ("m64n16k16.bf16", (8, 2), (128, 64)),
        ("m8n8k4.f64", (2, 1), (32, 32)),
        ("m16n8k4.f64", (1, 2), (48, 64)),
    ],
)
@pytest.mark.parametrize("k_major", [True, False])
def test_threads_hold_each_element_of_a_block_once(instruction, warps, block, k_major):
    attrs = TileMmaAttrs(0, instruction, *warps, k_major, not k_major)
    registers = accumulator_registers(attrs, *block)
    thread = np.arange(32 * warps[0] * warps[1])

    held = np.zeros(block, np.int64)
    for register in range(registers):
        np.add.at(held, accumulator_position(attrs, *block, thread, register), 1)

    assert (held == 1).all()


def test_a_warp_holds_its_own_rectangle_of_a_block():
    attrs = TileMmaAttrs(0, "m16n8k16.f16", 2, 2, True, True)
    thread = np.arange(64, 96)  # warp 2: the second row of warps, its first

    places = [accumulator_position(attrs, 64, 32, thread, register) for register in range(16)]
    rows, columns = (np.unique(each) for each in zip(*places, strict=True))

    assert rows.tolist() == list(range(32, 64))
    assert columns.tolist() == list(range(16))


def test_a_name_tells_the_shape():
    shape = mma_shape("m64n128k16.bf16")

    assert (shape.m, shape.n, shape.k) == (64, 128, 16)
    assert shape.a is shape.b is dtypes.bfloat16
    assert shape.accumulate is dtypes.float32


def test_factors_of_bytes_may_have_two_words_and_sum_int32():
    shape = mma_shape("m16n8k32.s8.u8")

    assert (shape.a, shape.b, shape.accumulate) == (dtypes.int8, dtypes.uint8, dtypes.int32)
    assert words_of(shape.a, shape.b) == "s8.u8"
    assert words_of(shape.a, shape.a) == "s8"


@pytest.mark.parametrize(
    "name",
    [
        *("m16n16k16.f16", "m64n12k16.f16", "m64n264k16.f16", "m16n8k8.tf32", "m64n64k16.s8"),
        *("m64n40k32.s8", "m64n64k32.f16", "m64n64k16.f16.bf16", "m64n64k32.s4", "m16n8k8.f64"),
    ],
)
def test_a_name_of_no_instruction_is_refused(name):
    with pytest.raises(InternalError, match="no instruction has this name"):
        mma_shape(name)
