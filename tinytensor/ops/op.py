"""The op table: every operation a graph may hold, one row each."""

from __future__ import annotations

from enum import Enum, Flag, auto, unique

from tinytensor.ops import attrs as a
from tinytensor.ops import attrs_blocks as b


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
    VARIABLE = ("", "out = the launch's scalar attrs.number", a.VariableAttrs)
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
    RUN = ("inputs*", "out = result attrs.number of what the host runs", a.RunAttrs, T)
    # Kernels: who reads and writes which element.
    PARAM = ("", "out = the kernel's buffer attrs.number", a.ParamAttrs, IL)
    RANGE = ("extent?", "out = each of 0 .. extent - 1, the attrs' or at most it", a.RangeAttrs, I)
    LOAD = ("buffer index guard?", "out = buffer[index] if guard else 0", a.AccessAttrs, IL)
    STORE = ("buffer index value guard?", "buffer[index] = value if guard", a.AccessAttrs, IL)
    SINK = ("stores*", "all stores", None, I)
    # LINEAR: structure and state.
    EXTENT = ("", "out = the elements of the instance that runs, <= extent", a.ExtentAttrs, L)
    WORKSPACE = ("", "out = a region of the launch's scratch memory", a.WorkspaceAttrs, L)
    LOOP = ("begin end", "out = begin, begin + step, .. below end", a.LoopAttrs, L)
    ENDLOOP = ("loop", "closes loop", a.EffectAttrs, L)
    IF = ("cond", "what follows runs when cond", a.EffectAttrs, L)
    ELSE = ("if", "what follows runs when not cond", a.EffectAttrs, L)
    ENDIF = ("if", "closes if", a.EffectAttrs, L)
    REGISTER = ("", "out = a register variable", a.EffectAttrs, L)
    READ = ("register", "out = the register's value now", a.EffectAttrs, L)
    WRITE = ("register value", "register = value", a.EffectAttrs, L)
    # LINEAR: arithmetic of the machine and of lanes.
    FMA = ("x y z", "out[i] = x[i] * y[i] + z[i], rounded once", None, L)
    TRUNCDIV = ("x y", "out[i] = x[i] / y[i] toward 0; y[i] not 0, no overflow", None, L)
    TRUNCMOD = ("x y", "out[i] = x[i] - y[i] * trunc(x[i] / y[i])", None, L)
    ABS = ("x", "out[i] = x[i] without its sign", None, L)
    SCALE = ("x n", "out[i] = x[i] * 2 ** n[i], rounded once; n[i] whole", None, L)
    EXP2_APPROX = ("x", "out[i] = 2 ** x[i] within 2 ulp; denormals are 0", None, L, FUNCTION)
    RECIPROCAL_APPROX = (
        "x",
        "out[i] = 1 / x[i] within an ulp; denormals are 0",
        *(None, L, FUNCTION),
    )
    SPLAT = ("x", "out[i] = x", None, L)
    STACK = ("lanes*", "out[i] = lanes[i]", None, L)
    LANE = ("x", "out = x[lanes[0]]", a.LanesAttrs, L)
    SHUFFLE = ("x y", "out[i] = (x then y)[lanes[i]]", a.LanesAttrs, L)
    CALL = (
        "cond x*",
        "out[i] = attrs.function(x[i], ..) of the C library where cond[i], else 0",
        *(a.CallAttrs, L, FUNCTION),
    )
    # LINEAR of a thread block: who runs, shared memory, and waiting for one another.
    PLACE = ("", "out = the running thread's number, its warp's or its block's", b.PlaceAttrs, L)
    SHARED = ("", "out = a region of the block's shared memory", b.SharedAttrs, L)
    BARRIER = ("group?", "waits until attrs.threads threads have come here", b.BarrierAttrs, L)
    EXCHANGE = ("x", "out of lane i = x of lane i ^ attrs.distance", b.ExchangeAttrs, L)
    GRID_WAIT = ("", "waits until the launches before this one have ended", a.EffectAttrs, L)
    ROLE = ("", "what follows is run by attrs.warps warps alone", b.RoleAttrs, L)
    ENDROLE = ("role", "closes role", a.EffectAttrs, L)
    COPY_ASYNC = (
        "target index source start valid",
        "target[index + j] = source[start + j] if j < valid else 0, unfinished until waited for",
        *(b.CopyAttrs, L),
    )
    COPY_COMMIT = ("", "closes a group of this thread's unfinished copies", a.EffectAttrs, L)
    COPY_WAIT = ("", "waits until at most attrs.pending groups are unfinished", b.WaitAttrs, L)
    # Matrix instructions of one warp.
    LDMATRIX = ("source index", "out = fragments of four 8x8 matrices", b.FragmentAttrs, L)
    MMA = ("x y z", "out = x @ y + z, fragments of attrs.instruction", b.MmaAttrs, L, SUM)
    # Collective ops on tiles of shared memory, run by all threads of the role.
    TILE = ("", "out = a ring of tiles in shared memory", b.TileAttrs, L)
    TILE_COPY = (
        "tile stage source start rows columns",
        "tile[stage, r, c] = source[start + r * row_stride + c] if r < rows and c < columns else 0",
        *(b.TileCopyAttrs, L),
    )
    TILE_MMA = (
        "accumulator x x_stage y y_stage",
        "accumulator += x[x_stage] @ y[y_stage], in flight until MMA_WAIT",
        *(b.TileMmaAttrs, L, SUM),
    )
    MMA_WAIT = ("accumulator", "waits until the accumulator may be read", b.WaitAttrs, L)
    # Hopper: transaction barriers, bulk tensor copies, warpgroup products.
    MBARRIERS = ("", "out = barriers that count arrivals and bytes", b.MbarrierAttrs, L)
    MBARRIER_INIT = ("barriers", "each barrier awaits its arrivals, phase 0", a.EffectAttrs, L)
    MBARRIER_EXPECT = ("barriers i bytes", "arrives at i; awaits bytes more", a.EffectAttrs, L)
    MBARRIER_ARRIVE = ("barriers i", "arrives at barrier i", a.EffectAttrs, L)
    MBARRIER_WAIT = ("barriers i parity", "waits until that phase is over", a.EffectAttrs, L)
    TENSOR_MAP = ("buffer", "out = buffer as the bulk copy engine sees it", b.TensorMapAttrs, L)
    BULK_LOAD = (
        "tile stage map barriers i places*",
        "tile[stage] = the box of map at places, 0 outside; its bytes count at barrier i",
        *(a.EffectAttrs, L),
    )
    BULK_STORE = (
        "map tile stage places*",
        "the box of map at places = tile[stage], unfinished until BULK_WAIT",
        *(a.EffectAttrs, L),
    )
    BULK_COMMIT = ("", "closes a group of this thread's bulk stores", a.EffectAttrs, L)
    BULK_WAIT = ("", "waits until at most attrs.pending groups still read", b.WaitAttrs, L)
    PROXY_FENCE = ("", "makes own shared stores visible to the copy engine", a.EffectAttrs, L)
    WGMMA_FENCE = ("accumulators*", "orders register use before WGMMA", a.EffectAttrs, L)
    WGMMA = (
        "accumulator x x_index y y_index adds",
        "accumulator = (accumulator if adds else 0) + the product of two shared blocks, in flight",
        *(b.WgmmaAttrs, L, SUM),
    )
    WGMMA_COMMIT = ("", "closes a group of products", a.EffectAttrs, L)
    WGMMA_WAIT = ("accumulators*", "waits until at most attrs.pending are left", b.WaitAttrs, L)

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
APPROXIMATE = (Op.EXP2_APPROX, Op.RECIPROCAL_APPROX)
MACHINE = (Op.FMA, Op.TRUNCDIV, Op.TRUNCMOD, Op.ABS, Op.SCALE, *APPROXIMATE)
OPENERS = (Op.LOOP, Op.IF, Op.ELSE, Op.ROLE)
CLOSERS = (Op.ENDLOOP, Op.ENDIF, Op.ELSE, Op.ENDROLE)
COMMUTATIVE = frozenset((Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.EQ, Op.NE, *LOGICAL))
