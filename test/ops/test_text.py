import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.indexed import contract, facts, kernel, load, param, reduce, sink, store

from tinytensor.codegen.builder import Builder, fma, lane, shuffle, splat, stack
from tinytensor.dtype import USER_DTYPES, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops import attrs as a
from tinytensor.ops.attrs import Combine
from tinytensor.ops.kernel import Decision, Kernel, Param
from tinytensor.ops.op import BINARY, Op
from tinytensor.ops.text import parse, show
from tinytensor.ops.uop import UOp, binary, buffer, cast, compare, const, make_range, where

F32 = dtypes.float32


def sample_kernel():
    m, n, k = (make_range(number, extent) for number, extent in enumerate((2, 3, 4)))
    x, w, out = param(1, dtypes.float16, 8), param(2, dtypes.float16, 12), param(0, F32, 6)
    product = contract(load(x, m * 4 + k), load(w, n * 4 + k) * 2.0, (), (m,), (n,), (k,))
    root = sink(store(out, m * 3 + n, product, compare(Op.LT, m, n)))
    contraction = facts(product, (), (m,), (n,), (k,))
    made = kernel(root, (m, n), out, x, w, contraction=contraction)
    reasons = (Decision("fuse", "mul", 'a "prologue" # of 12 elements'),)
    return Kernel(
        *[made.name, made.sink, made.ranges, made.params], contraction, dtypes.int32, reasons
    )


def sample_linear():
    b = Builder("sample", (Param(F32, 8, True), Param(F32, 8, False)), dtypes.int32)
    scratch = b.workspace(F32, 8)
    total = b.register(F32.vector(4), 0.0)
    with b.loop(0, 8, step=4, unroll=2) as i:
        x = b.load(b.param(1), i, lanes=4)
        b.write(total, fma(x, x, b.read(total)))
        b.store(scratch, i, shuffle(x, x, (3, 2, 1, 0)))
        with b.branch(compare(Op.LT, i, 4)) as opened:
            b.store(b.param(0), i, splat(lane(x, 1), 4), valid=3)
            b.otherwise(opened)
            b.store(b.param(0), i, stack([lane(x, number) for number in range(4)]))
    cond = splat(const(dtypes.bool, True), 4)
    called = UOp(Op.CALL, F32.vector(4), (cond, b.read(total)), a.CallAttrs("sin"))
    b.store(b.param(0), b.index(0), called, guard=compare(Op.LT, b.index(0), 1))
    return b.finish()


def sample_views():
    x = buffer(F32, (2, 3), "PYTHON")
    flipped = UOp(Op.SLICE, F32, (x,), a.SliceAttrs((1, 2), (-1, -1), (2, 2)))
    padded = UOp(Op.PAD, F32, (flipped, const(F32, -0.0)), a.PadAttrs((0, 1), (1, 0)))
    turned = UOp(Op.PERMUTE, F32, (padded,), a.OrderAttrs((1, 0)))
    flat = UOp(Op.RESHAPE, F32, (turned,), a.ShapeAttrs((9, 1)))
    wide = UOp(Op.EXPAND, F32, (flat,), a.ShapeAttrs((9, 4)))
    place = UOp(Op.REDUCE, dtypes.int64, (wide,), a.ReduceAttrs(Combine.ARGMAX, (1,)))
    checked = UOp(Op.CHECK, dtypes.int64, (place,), a.CheckAttrs("take", 0, -9, 9))
    gathered = UOp(Op.GATHER, F32, (flat, checked), a.GatherAttrs((0,)))
    wide = UOp(Op.EXPAND, F32, (gathered,), a.ShapeAttrs((9, 4)))
    copied = UOp(Op.COPY, dtypes.int64, (place,), a.DeviceAttrs("CPU"))
    return x, (copied, wide, UOp(Op.IOTA, dtypes.int8, (), a.ExtentAttrs(7)))


def test_a_graph_reads_line_by_line():
    m = make_range(0, 4)

    text = show(cast(m * 2, F32) + 1.0)

    assert text.splitlines() == [
        "graph",
        "%0 = RANGE index number=0 extent=4",
        "%1 = CONST index bits=2",
        "%2 = MUL index %0 %1",
        "%3 = CAST float32 %2",
        "%4 = CONST float32 bits=1065353216 # 1.0",
        "%5 = ADD float32 %3 %4",
        "return %5",
    ]


def test_a_kernel_reads_line_by_line():
    m, k = make_range(0, 2), make_range(1, 3)
    x, out = param(1, F32, 6), param(0, F32, 2)
    total = reduce(Combine.ADD, load(x, m * 3 + k), k)

    text = show(kernel(sink(store(out, m, total)), (m,), out, x))

    assert text.splitlines() == [
        "kernel sample int32",
        "param float32 2 written",
        "param float32 6 read",
        "%0 = RANGE index number=0 extent=2",
        "%1 = PARAM float32 number=0 elements=2",
        "%2 = PARAM float32 number=1 elements=6",
        "%3 = CONST index bits=3",
        "%4 = MUL index %0 %3",
        "%5 = RANGE index number=1 extent=3",
        "%6 = ADD index %4 %5",
        "%7 = LOAD float32 %2 %6",
        "%8 = REDUCE float32 %7 %5 combine=add axes=()",
        "%9 = STORE void %1 %0 %8",
        "%10 = SINK void %9",
        "ranges %0",
        "return %10",
    ]


def test_blocks_of_a_linear_are_indented():
    lines = show(sample_linear()).splitlines()

    depths = {line.split()[2]: len(line) - len(line.lstrip()) for line in lines if " = " in line}
    assert depths["LOOP"] == depths["ENDLOOP"] == 0
    assert depths["WRITE"] == depths["IF"] == depths["ELSE"] == depths["ENDIF"] == 2
    assert depths["STACK"] == 4


def test_views_come_back_identical():
    _, roots = sample_views()

    assert parse(show(roots)) == roots


def test_a_kernel_comes_back_equal():
    sample = sample_kernel()

    assert parse(show(sample)) == sample


def test_a_linear_comes_back_equal():
    sample = sample_linear()

    assert parse(show(sample)) == sample


@pytest.mark.parametrize("bits", [0, 0x80000000, 0x7F800000, 0x7FC00000, 0xFFA00123, 1])
def test_a_constant_comes_back_with_its_bits(bits):
    node = UOp(Op.CONST, F32, (), a.ConstAttrs(bits))

    assert parse(show(node)) == (node,)


def graphs():
    """Random values of one dtype, with shared operands."""

    def build(dtype):
        numbers = st.integers(-3, 3) if dtype.kind == "int" else st.integers(0, 3)
        leaves = numbers.map(lambda number: const(dtype, number))
        ops = st.sampled_from([op for op in BINARY if is_legal(op, dtype)])

        def extend(inner):
            chosen = st.builds(lambda x, y: where(compare(Op.LT, x, y), x, y), inner, inner)
            turned = inner.map(lambda x: cast(cast(x, dtypes.int32), dtype))
            return st.one_of(st.builds(binary, ops, inner, inner), chosen, turned)

        return st.recursive(leaves, extend, max_leaves=12)

    return st.sampled_from([each for each in USER_DTYPES if each.kind != "bool"]).flatmap(build)


def is_legal(op, dtype):
    if op in (Op.DIV,):
        return dtype.is_float
    return dtype.is_int or op in (Op.ADD, Op.SUB, Op.MUL, Op.MOD, Op.MAX, Op.MIN)


@given(st.lists(graphs(), min_size=1, max_size=3))
def test_a_random_graph_comes_back_identical(roots):
    found = parse(show(roots))

    assert len(found) == len(roots)
    assert all(one is other for one, other in zip(found, roots, strict=True))


def test_a_long_chain_needs_no_recursion():
    node = const(dtypes.int32, 0)
    for _ in range(20_000):
        node = node + 1

    assert parse(show(node))[0] is node


@pytest.mark.parametrize(
    "line",
    [
        "%1 = ADD float32 %7 %8",
        "%1 = SPIN float32",
        "%1 = CONST float33 bits=0",
        "%1 = CONST float32 bits=one",
        "%1 = RANGE index begin=0",
        "%1 ADD float32",
        "hello",
    ],
)
def test_a_line_that_makes_no_sense_is_refused(line):
    with pytest.raises(InternalError) as caught:
        parse(f"graph\n{line}\nreturn %1")

    assert str(caught.value) == f"parse: the line makes no sense: {line!r}."
