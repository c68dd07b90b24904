import pytest
from ops.indexed import contract, facts, kernel, load, param, reduce, sink, store

from tinytensor.codegen.builder import Builder, splat
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops import attrs as a
from tinytensor.ops.attrs import Combine
from tinytensor.ops.kernel import Contraction, Param
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, buffer, cast, compare, const, index_const, make_range
from tinytensor.ops.verify import verify_indexed, verify_linear, verify_tensor

F32, VOID, INDEX = dtypes.float32, dtypes.void, dtypes.index
M, N, K = (make_range(number, extent) for number, extent in enumerate((2, 3, 4)))
OUT, X, W = param(0, F32, 6), param(1, F32, 8), param(2, F32, 12)


def refusal(verify, *arguments):
    with pytest.raises(InternalError) as caught:
        verify(*arguments)
    return str(caught.value)


# TENSOR form.
def test_a_tensor_graph_passes():
    x = buffer(F32, (2, 3), "PYTHON")

    verify_tensor([UOp(Op.REDUCE, F32, (x,), a.ReduceAttrs(Combine.ADD, (0,)))])


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            make_range(0, 4),
            "op is not of this form: %0 = RANGE index number=0 extent=4; "
            "each form has its own ops.",
        ),
        (
            UOp(Op.IOTA, INDEX, (), a.ExtentAttrs(3)),
            "dtype is the compiler's own: %0 = IOTA index extent=3; users have values.",
        ),
        (
            UOp(Op.IOTA, dtypes.int32.vector(4), (), a.ExtentAttrs(3)),
            "vector: %0 = IOTA int32x4 extent=3; only linear has lanes.",
        ),
        (
            UOp(Op.NEG, F32, (const(F32, 1),), a.ExtentAttrs(1)),
            "attrs are of another op: %1 = NEG float32 %0 extent=1; "
            "the op table fixes their class.",
        ),
        (
            UOp(Op.COPY, F32, (const(F32, 1), const(F32, 1)), a.DeviceAttrs("CPU")),
            "number of operands: %1 = COPY float32 %0 %0 device=CPU; the op table fixes it.",
        ),
    ],
)
def test_a_tensor_graph_is_refused(node, message):
    assert refusal(verify_tensor, [node]) == f"verify tensor: {message}"


# INDEXED form.
def multiplied(value=None, index=None, **changes):
    """A matrix product's kernel, with parts replaced."""
    a_value, b_value = load(X, M * 4 + K), load(W, N * 4 + K)
    product = contract(a_value, b_value, (), (M,), (N,), (K,))
    root = sink(store(OUT, M * 3 + N if index is None else index, value or product))
    fields = {"contraction": facts(product, (), (M,), (N,), (K,)), **changes}
    return kernel(fields.pop("sink", root), fields.pop("ranges", (M, N)), OUT, X, W, **fields)


def summed(value, ranges=(M,), index=M, buffers=(OUT, X), **changes):
    return kernel(sink(store(OUT, index, value)), ranges, *buffers, **changes)


def test_a_kernel_passes():
    verify_indexed(multiplied())
    verify_indexed(summed(reduce(Combine.ADD, load(X, M * 4 + K), K)))


def test_an_index_outside_passes_with_a_guard_or_in_an_empty_space():
    none = make_range(0, 0)

    verify_indexed(summed(load(X, M + 7, compare(Op.LT, M, index_const(1)))))
    verify_indexed(summed(load(X, none + 9), ranges=(none,), index=none))


def gathered(dtype):
    """A load at an index that comes from memory, without a guard."""
    table = param(2, dtypes.int32, 2)
    index = load(table, M)
    value = load(X, cast(index, dtype))
    return summed(value, buffers=(OUT, X, table))


LEGAL = load(X, M)
NUMBERED = make_range(0, 5)
PRODUCT = multiplied().contraction.node
REFUSED = {
    "a kernel is a sink": (
        lambda: kernel(store(OUT, M, LEGAL), (M,), OUT, X),
        "root is no sink: %4 = STORE void %1 %0 %3; a kernel is one.",
    ),
    "views are gone": (
        lambda: summed(UOp(Op.RESHAPE, F32, (LEGAL,), a.ShapeAttrs(()))),
        "op is not of this form: %4 = RESHAPE float32 %3 shape=(); each form has its own ops.",
    ),
    "an access has no attrs": (
        lambda: summed(UOp(Op.LOAD, F32, (X, M), a.AccessAttrs(-1, 1))),
        "has attrs: %3 = LOAD float32 %2 %0 order=-1 valid=1; accesses get them in linear.",
    ),
    "an index is of dtype index": (
        lambda: summed(load(X, const(dtypes.int32, 1))),
        "index is of a user's dtype: %4 = LOAD float32 %2 %3; it must be of dtype index.",
    ),
    "a guard is bool": (
        lambda: summed(load(X, M, M)),
        "guard is no bool: %3 = LOAD float32 %2 %0 %0; it says whether memory is touched.",
    ),
    "a load stays inside": (
        lambda: summed(load(X, M + 7)),
        "index 7 to 8 leaves 8 elements: %5 = LOAD float32 %2 %4; a guard must exclude it.",
    ),
    "a store stays inside": (
        lambda: summed(LEGAL, index=M - 1),
        "index -1 to 0 leaves 6 elements: %6 = STORE void %1 %3 %5; a guard must exclude it.",
    ),
    "an index from memory is guarded": (
        lambda: gathered(INDEX),
        "index -2147483648 to 2147483647 leaves 8 elements: %6 = LOAD float32 %2 %5; "
        "a guard must exclude it.",
    ),
    "numbers of ranges are unique": (
        lambda: summed(reduce(Combine.ADD, load(X, NUMBERED), NUMBERED)),
        "number is that of another range: %3 = RANGE index number=0 extent=5; numbers are unique.",
    ),
    "a range has an owner": (
        lambda: summed(load(X, K)),
        "is not either the kernel's or folded: %3 = RANGE index number=2 extent=4; "
        "a range has one owner.",
    ),
    "a range has one owner": (
        lambda: summed(reduce(Combine.ADD, load(X, M), M)),
        "is not either the kernel's or folded: %0 = RANGE index number=0 extent=2; "
        "a range has one owner.",
    ),
    "a folded range stays beneath its fold": (
        lambda: summed(reduce(Combine.ADD, load(X, K), K) + load(X, K)),
        "range is used outside its fold: %3 = RANGE index number=2 extent=4; "
        "only what is beneath the fold may vary.",
    ),
    "a param is known": (
        lambda: summed(load(W, M)),
        "number is unknown: %2 = PARAM float32 number=2 elements=12; there are 2 params.",
    ),
    "a param has its size": (
        lambda: summed(load(param(1, F32, 9), M)),
        "differs from its param: %2 = PARAM float32 number=1 elements=9; "
        "that has 8 elements of float32.",
    ),
    "every param is used": (
        lambda: summed(LEGAL, buffers=(OUT, X, W)),
        "params read or written are [0, 1]: %5 = SINK void %4; all 3 must be.",
    ),
    "a sink has stores": (
        lambda: kernel(sink(store(OUT, M, LEGAL), LEGAL), (M,), OUT, X),
        "is no store: %3 = LOAD float32 %2 %0; a sink has only stores.",
    ),
    "a store goes to a written param": (
        lambda: summed(LEGAL, written=()),
        "param is read only: %4 = STORE void %1 %0 %3; stores go to written params.",
    ),
    "a written param has a store": (
        lambda: summed(LEGAL, written=(0, 1)),
        "is written and has no store: %2 = PARAM float32 number=1 elements=8; "
        "a store must fill it.",
    ),
    "a contraction has facts": (
        lambda: multiplied(contraction=None),
        "the kernel's facts are of another: %16 = CONTRACT float32 %11 %15 %9 "
        "batch=() m=(0) n=(1) k=(2) accumulate=float32; it has at most one.",
    ),
    "facts repeat the attrs": (
        lambda: multiplied(contraction=Contraction(PRODUCT, (), (N,), (M,), (K,))),
        "facts about m differ: %16 = CONTRACT float32 %11 %15 %9 "
        "batch=() m=(0) n=(1) k=(2) accumulate=float32; they repeat the attrs.",
    ),
}


@pytest.mark.parametrize("claim", REFUSED)
def test_in_a_kernel(claim):
    build, message = REFUSED[claim]

    assert refusal(verify_indexed, build()) == f"verify indexed: sample: {message}"


def contracted(b_value, m=(M,), n=(N,), k=(K,), folded=None):
    node = contract(load(X, M * 4 + K), b_value, (), m, n, k)
    if folded is not None:
        node = UOp(node.op, node.dtype, (*node.operands[:2], *folded), node.attrs)
    root = sink(store(OUT, M * 3 + N, node))
    contraction = Contraction(node, (), m, n, k)
    return kernel(root, (M, N), OUT, X, W, contraction=contraction)


def test_an_operand_varies_over_its_classes_only():
    found = refusal(verify_indexed, contracted(load(W, N * 4 + K), n=()))

    assert found == (
        "verify indexed: sample: b varies over another range: %16 = CONTRACT float32 %11 %15 %9 "
        "batch=() m=(0) n=() k=(2) accumulate=float32; it has batch, n and k."
    )


def test_the_first_operand_varies_over_its_classes_only():
    found = refusal(verify_indexed, contracted(load(W, N * 4 + K), m=()))

    assert found == (
        "verify indexed: sample: a varies over another range: %16 = CONTRACT float32 %11 %15 %9 "
        "batch=() m=() n=(1) k=(2) accumulate=float32; it has batch, m and k."
    )


def test_a_range_has_one_class():
    found = refusal(verify_indexed, contracted(load(W, N * 4 + K), m=(M, N)))

    assert found == (
        "verify indexed: sample: a range is of two classes: %16 = CONTRACT float32 %11 %15 %9 "
        "batch=() m=(0,1) n=(1) k=(2) accumulate=float32; each has one."
    )


def test_a_contraction_folds_its_k():
    found = refusal(verify_indexed, contracted(load(W, N * 4 + K), k=(N,), n=(), folded=(K,)))

    assert found == (
        "verify indexed: sample: k is not what it folds over: %16 = CONTRACT float32 %11 %15 %9 "
        "batch=() m=(0) n=() k=(1) accumulate=float32; they are the same ranges."
    )


def test_facts_are_of_a_node_of_the_kernel():
    found = refusal(verify_indexed, summed(LEGAL, contraction=multiplied().contraction))

    assert found == (
        "verify indexed: sample: facts are of a node outside the kernel: %16 = CONTRACT float32 "
        "%10 %15 %8 batch=() m=(0) n=(1) k=(2) accumulate=float32; it must occur."
    )


# LINEAR form.
PARAMS = (Param(F32, 8, True), Param(F32, 8, False))
I32 = dtypes.int32
ZERO, ONE, TRUE = const(I32, 0), const(F32, 1.0), const(dtypes.bool, True)
TARGET, SOURCE = param(0, F32, 8), param(1, F32, 8)


def effect(op, order, *operands, dtype=VOID):
    return UOp(op, dtype, operands, a.EffectAttrs(order))


def access(op, order, *operands, valid=1, dtype=VOID):
    return UOp(op, dtype, operands, a.AccessAttrs(order, valid))


def looped(order, *operands, step=1, dtype=I32):
    return UOp(Op.LOOP, dtype, operands, a.LoopAttrs(order, step))


def listed(*statements, workspace_bytes=0):
    return Linear("sample", PARAMS, statements, workspace_bytes)


def test_a_built_linear_passes():
    b = Builder("sample", PARAMS, dtypes.int64)
    scratch = b.workspace(F32, 4)
    total = b.register(F32.vector(4), 0.0)
    with b.loop(0, 8, step=4) as i:
        b.write(total, b.read(total) + b.load(b.param(1), i, lanes=4))
        with b.branch(compare(Op.LT, i, 4)) as opened:
            b.store(scratch, i, const(F32, 2.0))
            b.otherwise(opened)
            b.store(b.param(0), i, const(F32, 2.0))
    b.store(b.param(0), b.index(0), b.read(total), valid=3, guard=TRUE)

    verify_linear(b.finish())


def test_a_register_written_in_both_halves_may_be_read():
    register = effect(Op.REGISTER, 1, dtype=F32)
    opened = effect(Op.IF, 2, TRUE)
    write, other = effect(Op.WRITE, 3, register, ONE), effect(Op.WRITE, 4, register, ONE)
    middle, end = effect(Op.ELSE, 5, opened), effect(Op.ENDIF, 6, opened)
    read = effect(Op.READ, 7, register, dtype=F32)

    verify_linear(listed(ONE, TRUE, register, opened, write, middle, other, end, read))


def unwritten_after(*writes_in_branch):
    register = effect(Op.REGISTER, 1, dtype=F32)
    opened = effect(Op.IF, 2, TRUE)
    writes = [effect(Op.WRITE, order, register, ONE) for order in writes_in_branch]
    end, read = effect(Op.ENDIF, 6, opened), effect(Op.READ, 7, register, dtype=F32)
    return listed(ONE, TRUE, register, opened, *writes, end, read)


def unwritten_after_loop():
    register = effect(Op.REGISTER, 1, dtype=F32)
    loop = looped(2, ZERO, ZERO)
    write, end = effect(Op.WRITE, 3, register, ONE), effect(Op.ENDLOOP, 4, loop)
    read = effect(Op.READ, 5, register, dtype=F32)
    return listed(ONE, ZERO, register, loop, write, end, read)


def crossed_blocks():
    loop, opened = looped(1, ZERO, ZERO), effect(Op.IF, 2, TRUE)
    return listed(ZERO, TRUE, loop, opened, effect(Op.ENDLOOP, 3, loop))


def two_halves_more():
    opened = effect(Op.IF, 1, TRUE)
    return listed(TRUE, opened, effect(Op.ELSE, 2, opened), effect(Op.ELSE, 3, opened))


def used_outside():
    opened = effect(Op.IF, 1, TRUE)
    return listed(TRUE, ZERO, TARGET, opened, ONE, effect(Op.ENDIF, 2, opened), STORE)


STORE = access(Op.STORE, 3, TARGET, ZERO, ONE)
UNALIGNED = UOp(Op.WORKSPACE, F32, (), a.WorkspaceAttrs(4, 1))
REGION = UOp(Op.WORKSPACE, F32, (), a.WorkspaceAttrs(64, 4))
IN_LINEAR = {
    "folds are gone": (
        lambda: listed(reduce(Combine.ADD, ONE)),
        "op is not of this form: %1 = REDUCE float32 %0 combine=add axes=(); "
        "each form has its own ops.",
    ),
    "an access has attrs": (
        lambda: listed(ZERO, SOURCE, load(SOURCE, ZERO)),
        "attrs are of another op: %2 = LOAD float32 %1 %0; the op table fixes their class.",
    ),
    "an operand comes first": (
        lambda: listed(ONE + ONE, ONE),
        "an operand is not visible: %1 = ADD float32 %0 %0; it is defined before, in reach.",
    ),
    "an operand is in reach": (
        used_outside,
        "an operand is not visible: %6 = STORE void %2 %1 %4 order=3 valid=1; "
        "it is defined before, in reach.",
    ),
    "a value is defined once": (
        lambda: listed(ONE, ONE),
        "is defined twice in one scope: %0 = CONST float32 bits=1065353216 # 1.0; once is enough.",
    ),
    "orders are unique": (
        lambda: listed(ZERO, ONE, TARGET, STORE, effect(Op.REGISTER, 3, dtype=F32)),
        "order is that of another effect: %4 = REGISTER float32 order=3; orders are unique.",
    ),
    "an effect has an order": (
        lambda: listed(ZERO, ONE, TARGET, access(Op.STORE, -1, TARGET, ZERO, ONE)),
        "order is that of another effect: %3 = STORE void %2 %0 %1 order=-1 valid=1; "
        "orders are unique.",
    ),
    "blocks are closed": (
        lambda: listed(TRUE, effect(Op.IF, 1, TRUE)),
        "a block is still open: %1 = IF void %0 order=1; each is closed.",
    ),
    "blocks nest": (
        crossed_blocks,
        "closes no open block: %4 = ENDLOOP void %2 order=3; blocks nest.",
    ),
    "a branch has two halves": (
        two_halves_more,
        "is a second one: %3 = ELSE void %1 order=3; a branch has two halves.",
    ),
    "a register is written first": (
        lambda: unwritten_after(3),
        "register may not be written yet: %6 = READ float32 %2 order=7; "
        "a write precedes it on every path.",
    ),
    "a loop may not run": (
        unwritten_after_loop,
        "register may not be written yet: %6 = READ float32 %2 order=5; "
        "a write precedes it on every path.",
    ),
    "a read is of a register": (
        lambda: listed(ONE, effect(Op.READ, 1, ONE, dtype=F32)),
        "reads something else: %1 = READ float32 %0 order=1; a register of its own dtype.",
    ),
    "a param is known": (
        lambda: listed(W),
        "number is unknown: %0 = PARAM float32 number=2 elements=12; there are 2 params.",
    ),
    "a region is inside": (
        lambda: listed(REGION, workspace_bytes=64),
        "region leaves the scratch memory: %0 = WORKSPACE float32 offset_bytes=64 elements=4; "
        "that has 64 bytes.",
    ),
    "a region is aligned": (
        lambda: listed(UNALIGNED, workspace_bytes=64),
        "region is not aligned: %0 = WORKSPACE float32 offset_bytes=4 elements=1; "
        "64 bytes divide it.",
    ),
    "an index is an integer of the machine": (
        lambda: listed(
            SOURCE, index_const(0), access(Op.LOAD, -1, SOURCE, index_const(0), dtype=F32)
        ),
        "index has another dtype: %2 = LOAD float32 %0 %1 order=-1 valid=1; it is int32 or int64.",
    ),
    "a guard is bool": (
        lambda: listed(SOURCE, ZERO, access(Op.LOAD, -1, SOURCE, ZERO, ZERO, dtype=F32)),
        "guard is no bool: %2 = LOAD float32 %0 %1 %1 order=-1 valid=1; it is one for all lanes.",
    ),
    "valid lanes fit": (
        lambda: listed(SOURCE, ZERO, access(Op.LOAD, -1, SOURCE, ZERO, dtype=F32, valid=2)),
        "valid lanes do not fit: %2 = LOAD float32 %0 %1 order=-1 valid=2; "
        "there is one at least, and no more.",
    ),
    "a store goes to a written param": (
        lambda: listed(SOURCE, ZERO, ONE, access(Op.STORE, 1, SOURCE, ZERO, ONE)),
        "param is read only: %3 = STORE void %0 %1 %2 order=1 valid=1; "
        "stores go to written params.",
    ),
    "a load of what changes is ordered": (
        lambda: listed(
            REGION, ZERO, access(Op.LOAD, -1, REGION, ZERO, dtype=F32), workspace_bytes=128
        ),
        "reads scratch memory: %2 = LOAD float32 %0 %1 order=-1 valid=1; such a load has an order.",
    ),
    "a loop goes up": (
        lambda: listed(ZERO, looped(1, ZERO, ZERO, step=0)),
        "is no upward loop: %1 = LOOP int32 %0 %0 order=1 step=0 unroll=1; "
        "one int dtype, and a step above 0.",
    ),
    "a condition is bool": (
        lambda: listed(ZERO, effect(Op.IF, 1, ZERO)),
        "condition is no bool: %1 = IF void %0 order=1; it is one.",
    ),
    "a call has a condition per lane": (
        lambda: listed(
            TRUE,
            ONE,
            splat(ONE, 4),
            UOp(Op.CALL, F32.vector(4), (TRUE, splat(ONE, 4)), a.CallAttrs("sin")),
        ),
        "condition is no bool of its lanes: %3 = CALL float32x4 %0 %2 function=sin; "
        "it has one each.",
    ),
    "a call has one dtype": (
        lambda: listed(TRUE, ZERO, UOp(Op.CALL, F32, (TRUE, ZERO), a.CallAttrs("sin"))),
        "dtypes differ: %2 = CALL float32 %0 %1 function=sin; a call has one dtype.",
    ),
}


@pytest.mark.parametrize("claim", IN_LINEAR)
def test_in_a_linear(claim):
    build, message = IN_LINEAR[claim]

    assert refusal(verify_linear, build()) == f"verify linear: sample: {message}"
