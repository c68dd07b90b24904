"""The op table: every operation a graph may hold, one row each."""

from __future__ import annotations

from enum import Enum, Flag, auto, unique

from tinytensor.ops import attrs as a


class Form(Flag):
    """The forms in which an op is legal."""

    TENSOR = auto()
    INDEXED = auto()
    LINEAR = auto()
    ALL = TENSOR | INDEXED | LINEAR


@unique
class Mark(Enum):
    """How closely an op's result is fixed (docs/numerics.md)."""

    EXACT = "exact"
    REASSOCIATED = "reassociated"
    TRANSCENDENTAL = "transcendental"


IL = Form.INDEXED | Form.LINEAR
TI = Form.TENSOR | Form.INDEXED
T, I, L, ALL = Form.TENSOR, Form.INDEXED, Form.LINEAR, Form.ALL  # noqa: E741 - column heads
EXACT, SUM, FUNCTION = Mark.EXACT, Mark.REASSOCIATED, Mark.TRANSCENDENTAL


@unique
class Op(Enum):
    """Every operation; `i` runs over the result's index space (or lanes).

    In the operand column `x*` means any number of operands, `x?` an optional last one.
    """

    #      operands, meaning, attrs (None), forms (ALL), mark (EXACT)
    # Leaves.
    CONST = ("", "out = attrs.bits, read as dtype", a.ConstAttrs)
    BUFFER = ("", "out[i] = memory[i], row-major", a.BufferAttrs, T)
    IOTA = ("", "out[i] = i", a.ExtentAttrs, T)
    # Elementwise arithmetic; integers wrap at their width, halves round once from float32.
    ADD = ("x y", "out[i] = x[i] + y[i]")
    SUB = ("x y", "out[i] = x[i] - y[i]")
    MUL = ("x y", "out[i] = x[i] * y[i]")
    DIV = ("x y", "out[i] = x[i] / y[i], floats only")
    FLOORDIV = ("x y", "out[i] = floor(x[i] / y[i]), ints; 0 when y[i] = 0")
    MOD = ("x y", "out[i] = x[i] - y[i] * floor(x[i] / y[i]); int y 0: 0")
    NEG = ("x", "out[i] = -x[i]")
    MAX = ("x y", "out[i] = maximum(x[i], y[i]); NaN wins, -0 < +0")
    MIN = ("x y", "out[i] = minimum(x[i], y[i]); NaN wins, -0 < +0")
    SQRT = ("x", "out[i] = sqrt(x[i])")
    FLOOR = ("x", "out[i] = the greatest integer <= x[i], as a float")
    TRUNC = ("x", "out[i] = x[i] without its fraction, as a float")
    # Functions within 2 ulp in float32.
    EXP = ("x", "out[i] = e ** x[i]", None, ALL, FUNCTION)
    LOG = ("x", "out[i] = natural logarithm of x[i]", None, ALL, FUNCTION)
    SIN = ("x", "out[i] = sin(x[i])", None, ALL, FUNCTION)
    COS = ("x", "out[i] = cos(x[i])", None, ALL, FUNCTION)
    TANH = ("x", "out[i] = tanh(x[i])", None, ALL, FUNCTION)
    ERF = ("x", "out[i] = erf(x[i])", None, ALL, FUNCTION)
    # Comparisons give bool; with a NaN all but NE are false.
    LT = ("x y", "out[i] = x[i] < y[i]")
    LE = ("x y", "out[i] = x[i] <= y[i]")
    EQ = ("x y", "out[i] = x[i] == y[i]")
    NE = ("x y", "out[i] = x[i] != y[i]")
    # Bits: bool and integers.
    AND = ("x y", "out[i] = x[i] & y[i]")
    OR = ("x y", "out[i] = x[i] | y[i]")
    XOR = ("x y", "out[i] = x[i] ^ y[i]")
    SHL = ("x y", "out[i] = x[i] << y[i]; 0 when y[i] is outside 0..bits-1")
    SHR = ("x y", "out[i] = x[i] >> y[i]; the sign (or 0) when outside")
    PHILOX = (
        "element draw key",
        "out[i] = words 0, 1 of Philox4x32-10(counter (element[i], draw[i]), key[i]), all uint64",
    )
    WHERE = ("cond x y", "out[i] = x[i] if cond[i] else y[i]")
    CAST = ("x", "out[i] = x[i] in dtype; float to int truncates, saturates")
    BITCAST = ("x", "out[i] = the bits of x[i], read as dtype")
    # Views.
    RESHAPE = ("x", "out = x's elements in row-major order, another shape", a.ShapeAttrs, T)
    PERMUTE = ("x", "out[i] = x[j] with j[order[d]] = i[d]", a.OrderAttrs, T)
    EXPAND = ("x", "out[i] = x[i], 0 along axes of extent 1", a.ShapeAttrs, T)
    SLICE = ("x", "out[i] = x[begin + i * step]", a.SliceAttrs, T)
    PAD = ("x fill", "out[i] = x[i - before] where inside, else fill", a.PadAttrs, T)
    DETACH = ("x", "out = x; its gradient ends here, or goes where attrs send it", a.DetachAttrs, T)
    CHECK = ("x", "out = x; the next host read raises where x[i] is outside", a.CheckAttrs, T)
    # Reading at computed places; an index beyond its axis is taken as the nearer end.
    GATHER = ("x indices*", "out[i] = x[j], j = i but indices[n][i] at axes[n]", a.GatherAttrs, T)
    # Folds. Float sums and products start from +0.0 and 1.0; argmax gives the first, NaN first.
    REDUCE = ("x ranges*", "out[i] = fold(combine, x[i, r] for all r)", a.ReduceAttrs, TI, SUM)
    CONTRACT = (
        "a b ranges*",
        "out[i] = sum(cast(a[i, k]) * cast(b[i, k]) for all k) in attrs.accumulate",
        *(a.ContractAttrs, I, SUM),
    )
    COPY = ("x", "out[i] = x[i], on attrs.device", a.DeviceAttrs, T)
    # Kernels: who reads and writes which element.
    PARAM = ("", "out = the kernel's buffer attrs.number", a.ParamAttrs, IL)
    RANGE = ("", "out = each of 0 .. extent - 1", a.RangeAttrs, I)
    LOAD = ("buffer index guard?", "out = buffer[index] if guard else 0", a.AccessAttrs, IL)
    STORE = ("buffer index value guard?", "buffer[index] = value if guard", a.AccessAttrs, IL)
    SINK = ("stores*", "all stores", None, I)
    # LINEAR: structure and state.
    WORKSPACE = ("", "out = a region of the launch's scratch memory", a.WorkspaceAttrs, L)
    LOOP = ("begin end", "out = begin, begin + step, .. below end", a.LoopAttrs, L)
    ENDLOOP = ("loop", "closes loop", a.EffectAttrs, L)
    IF = ("cond", "what follows runs when cond", a.EffectAttrs, L)
    ELSE = ("if", "what follows runs when not cond", a.EffectAttrs, L)
    ENDIF = ("if", "closes if", a.EffectAttrs, L)
    REGISTER = ("", "out = a register variable", a.EffectAttrs, L)
    READ = ("register", "out = the register's value now", a.EffectAttrs, L)
    WRITE = ("register value", "register = value", a.EffectAttrs, L)
    PREFETCH = ("buffer index", "brings buffer[index] near; no value", a.EffectAttrs, L)
    # LINEAR: arithmetic of the machine and of lanes.
    FMA = ("x y z", "out[i] = x[i] * y[i] + z[i], rounded once", None, L)
    TRUNCDIV = ("x y", "out[i] = x[i] / y[i] toward 0; y[i] not 0, no overflow", None, L)
    TRUNCMOD = ("x y", "out[i] = x[i] - y[i] * trunc(x[i] / y[i])", None, L)
    SPLAT = ("x", "out[i] = x", None, L)
    STACK = ("lanes*", "out[i] = lanes[i]", None, L)
    LANE = ("x", "out = x[lanes[0]]", a.LanesAttrs, L)
    SHUFFLE = ("x y", "out[i] = (x then y)[lanes[i]]", a.LanesAttrs, L)
    CALL = (
        "cond x*",
        "out[i] = attrs.function(x[i], ..) of the C library where cond[i], else 0",
        *(a.CallAttrs, L, FUNCTION),
    )

    __hash__ = object.__hash__

    def __init__(
        self,
        operands: str,
        meaning: str,
        attrs: type | None = None,
        forms: Form = Form.ALL,
        mark: Mark = Mark.EXACT,
    ) -> None:
        self.operands = tuple(operands.split())
        self.attrs_type = attrs
        self.forms = forms
        self.mark = mark
        self.meaning = meaning


FUNCTIONS = (Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.ERF)
UNARY = (Op.NEG, Op.SQRT, Op.FLOOR, Op.TRUNC, *FUNCTIONS)
COMPARE = (Op.LT, Op.LE, Op.EQ, Op.NE)
LOGICAL = (Op.AND, Op.OR, Op.XOR)
BITWISE = (*LOGICAL, Op.SHL, Op.SHR)
BINARY = (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN, *BITWISE)
ELEMENTWISE = frozenset((*UNARY, *BINARY, *COMPARE, Op.PHILOX, Op.WHERE, Op.CAST, Op.BITCAST))
VIEWS = frozenset((Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SLICE, Op.PAD, Op.CHECK, Op.DETACH))
COMMUTATIVE = frozenset((Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.EQ, Op.NE, *LOGICAL))
