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


T, I, L, ALL = Form.TENSOR, Form.INDEXED, Form.LINEAR, Form.ALL  # noqa: E741 - column heads
EXACT, SUM, FUNCTION = Mark.EXACT, Mark.REASSOCIATED, Mark.TRANSCENDENTAL


@unique
class Op(Enum):
    """Every operation; `i` runs over the result's index space (or lanes).

    In the operand column `x*` means any number of operands, `x?` an optional last one.
    """

    #            operands            attrs             forms    mark      meaning
    # Leaves.
    CONST = ("", a.ConstAttrs, ALL, EXACT, "out = attrs.bits, read as dtype")
    BUFFER = ("", a.BufferAttrs, T, EXACT, "out[i] = memory[i], row-major")
    IOTA = ("", a.ExtentAttrs, T, EXACT, "out[i] = i")
    # Elementwise arithmetic; integers wrap at their width, halves round once from float32.
    ADD = ("x y", None, ALL, EXACT, "out[i] = x[i] + y[i]")
    SUB = ("x y", None, ALL, EXACT, "out[i] = x[i] - y[i]")
    MUL = ("x y", None, ALL, EXACT, "out[i] = x[i] * y[i]")
    DIV = ("x y", None, ALL, EXACT, "out[i] = x[i] / y[i], floats only")
    FLOORDIV = ("x y", None, ALL, EXACT, "out[i] = floor(x[i] / y[i]), ints; 0 when y[i] = 0")
    MOD = ("x y", None, ALL, EXACT, "out[i] = x[i] - y[i] * floor(x[i] / y[i]); int y 0: 0")
    NEG = ("x", None, ALL, EXACT, "out[i] = -x[i]")
    MAX = ("x y", None, ALL, EXACT, "out[i] = maximum(x[i], y[i]); NaN wins, -0 < +0")
    MIN = ("x y", None, ALL, EXACT, "out[i] = minimum(x[i], y[i]); NaN wins, -0 < +0")
    SQRT = ("x", None, ALL, EXACT, "out[i] = sqrt(x[i])")
    FLOOR = ("x", None, ALL, EXACT, "out[i] = the greatest integer <= x[i], as a float")
    TRUNC = ("x", None, ALL, EXACT, "out[i] = x[i] without its fraction, as a float")
    # Functions within 2 ulp in float32.
    EXP = ("x", None, ALL, FUNCTION, "out[i] = e ** x[i]")
    LOG = ("x", None, ALL, FUNCTION, "out[i] = natural logarithm of x[i]")
    SIN = ("x", None, ALL, FUNCTION, "out[i] = sin(x[i])")
    COS = ("x", None, ALL, FUNCTION, "out[i] = cos(x[i])")
    TANH = ("x", None, ALL, FUNCTION, "out[i] = tanh(x[i])")
    ERF = ("x", None, ALL, FUNCTION, "out[i] = erf(x[i])")
    # Comparisons give bool; with a NaN all but NE are false.
    LT = ("x y", None, ALL, EXACT, "out[i] = x[i] < y[i]")
    LE = ("x y", None, ALL, EXACT, "out[i] = x[i] <= y[i]")
    EQ = ("x y", None, ALL, EXACT, "out[i] = x[i] == y[i]")
    NE = ("x y", None, ALL, EXACT, "out[i] = x[i] != y[i]")
    # Bits: bool and integers.
    AND = ("x y", None, ALL, EXACT, "out[i] = x[i] & y[i]")
    OR = ("x y", None, ALL, EXACT, "out[i] = x[i] | y[i]")
    XOR = ("x y", None, ALL, EXACT, "out[i] = x[i] ^ y[i]")
    SHL = ("x y", None, ALL, EXACT, "out[i] = x[i] << y[i]; 0 when y[i] is outside 0..bits-1")
    SHR = ("x y", None, ALL, EXACT, "out[i] = x[i] >> y[i]; the sign (or 0) when outside")
    WHERE = ("cond x y", None, ALL, EXACT, "out[i] = x[i] if cond[i] else y[i]")
    CAST = ("x", None, ALL, EXACT, "out[i] = x[i] in dtype; float to int truncates, saturates")
    BITCAST = ("x", None, ALL, EXACT, "out[i] = the bits of x[i], read as dtype")
    # Views.
    RESHAPE = ("x", a.ShapeAttrs, T, EXACT, "out = x's elements in row-major order, another shape")
    PERMUTE = ("x", a.OrderAttrs, T, EXACT, "out[i] = x[j] with j[order[d]] = i[d]")
    EXPAND = ("x", a.ShapeAttrs, T, EXACT, "out[i] = x[i], 0 along axes of extent 1")
    SLICE = ("x", a.SliceAttrs, T, EXACT, "out[i] = x[begin + i * step]")
    PAD = ("x fill", a.PadAttrs, T, EXACT, "out[i] = x[i - before] where inside, else fill")
    # Folds. Float sums and products start from +0.0 and 1.0; argmax gives the first, NaN first.
    REDUCE = ("x ranges*", a.ReduceAttrs, T | I, SUM, "out[i] = fold(combine, x[i, r] for all r)")
    CONTRACT = (
        *("a b ranges*", a.ContractAttrs, I, SUM),
        "out[i] = sum(cast(a[i, k]) * cast(b[i, k]) for all k) in attrs.accumulate",
    )
    COPY = ("x", a.DeviceAttrs, T, EXACT, "out[i] = x[i], on attrs.device")
    # Kernels: who reads and writes which element.
    PARAM = ("", a.ParamAttrs, I | L, EXACT, "out = the kernel's buffer attrs.number")
    RANGE = ("", a.RangeAttrs, I, EXACT, "out = each of 0 .. extent - 1")
    LOAD = ("buffer index guard?", a.AccessAttrs, I | L, EXACT, "out = buffer[index] if guard else 0")
    STORE = ("buffer index value guard?", a.AccessAttrs, I | L, EXACT, "buffer[index] = value if guard")
    SINK = ("stores*", None, I, EXACT, "all stores")
    # LINEAR: structure and state.
    WORKSPACE = ("", a.WorkspaceAttrs, L, EXACT, "out = a region of the launch's scratch memory")
    LOOP = ("begin end", a.LoopAttrs, L, EXACT, "out = begin, begin + step, .. below end")
    ENDLOOP = ("loop", a.EffectAttrs, L, EXACT, "closes loop")
    IF = ("cond", a.EffectAttrs, L, EXACT, "what follows runs when cond")
    ELSE = ("if", a.EffectAttrs, L, EXACT, "what follows runs when not cond")
    ENDIF = ("if", a.EffectAttrs, L, EXACT, "closes if")
    REGISTER = ("", a.EffectAttrs, L, EXACT, "out = a register variable")
    READ = ("register", a.EffectAttrs, L, EXACT, "out = the register's value now")
    WRITE = ("register value", a.EffectAttrs, L, EXACT, "register = value")
    PREFETCH = ("buffer index", a.EffectAttrs, L, EXACT, "brings buffer[index] near; no value")
    # LINEAR: arithmetic of the machine and of lanes.
    FMA = ("x y z", None, L, EXACT, "out[i] = x[i] * y[i] + z[i], rounded once")
    TRUNCDIV = ("x y", None, L, EXACT, "out[i] = x[i] / y[i] toward 0; y[i] not 0, no overflow")
    TRUNCMOD = ("x y", None, L, EXACT, "out[i] = x[i] - y[i] * trunc(x[i] / y[i])")
    SPLAT = ("x", None, L, EXACT, "out[i] = x")
    STACK = ("lanes*", None, L, EXACT, "out[i] = lanes[i]")
    LANE = ("x", a.LanesAttrs, L, EXACT, "out = x[lanes[0]]")
    SHUFFLE = ("x y", a.LanesAttrs, L, EXACT, "out[i] = (x then y)[lanes[i]]")
    CALL = (
        *("cond x*", a.CallAttrs, L, FUNCTION),
        "out[i] = attrs.function(x[i], ..) of the C library where cond[i], else 0",
    )
    # LINEAR of a thread block: who runs, shared memory, and waiting for one another.
    PLACE = ("", a.PlaceAttrs, L, EXACT, "out = the running thread's number, or its block's")
    SHARED = ("", a.SharedAttrs, L, EXACT, "out = a region of the block's shared memory")
    BARRIER = ("", a.BarrierAttrs, L, EXACT, "waits until attrs.threads threads have come here")
    EXCHANGE = ("x", a.ExchangeAttrs, L, EXACT, "out of lane i = x of lane i ^ attrs.distance")
    ROLE = ("", a.RoleAttrs, L, EXACT, "what follows is run by attrs.warps warps alone")
    ENDROLE = ("role", a.EffectAttrs, L, EXACT, "closes role")
    COPY_ASYNC = (
        *("target index source start valid", a.CopyAttrs, L, EXACT),
        "target[index + j] = source[start + j] if j < valid else 0, unfinished until waited for",
    )
    COPY_COMMIT = ("", a.EffectAttrs, L, EXACT, "closes a group of this thread's unfinished copies")
    COPY_WAIT = ("", a.WaitAttrs, L, EXACT, "waits until at most attrs.pending groups are unfinished")
    # Matrix instructions of one warp.
    LDMATRIX = ("source index", a.FragmentAttrs, L, EXACT, "out = fragments of four 8x8 matrices")
    MMA = ("x y z", a.MmaAttrs, L, SUM, "out = x @ y + z, fragments of attrs.instruction")
    # Collective ops on tiles of shared memory, run by all threads of the role.
    TILE = ("", a.TileAttrs, L, EXACT, "out = a ring of tiles in shared memory")
    TILE_COPY = (
        *("tile stage source start rows columns", a.TileCopyAttrs, L, EXACT),
        "tile[stage, r, c] = source[start + r * row_stride + c] if r < rows and c < columns else 0",
    )
    TILE_MMA = (
        *("accumulator x x_stage y y_stage", a.TileMmaAttrs, L, SUM),
        "accumulator += x[x_stage] @ y[y_stage], in flight until MMA_WAIT",
    )
    MMA_WAIT = ("accumulator", a.WaitAttrs, L, EXACT, "waits until the accumulator may be read")
    # Hopper: transaction barriers, bulk tensor copies, warpgroup products.
    MBARRIERS = ("", a.MbarrierAttrs, L, EXACT, "out = barriers that count arrivals and bytes")
    MBARRIER_INIT = ("barriers", a.EffectAttrs, L, EXACT, "each barrier awaits its arrivals, phase 0")
    MBARRIER_EXPECT = ("barriers i bytes", a.EffectAttrs, L, EXACT, "arrives at i; awaits bytes more")
    MBARRIER_ARRIVE = ("barriers i", a.EffectAttrs, L, EXACT, "arrives at barrier i")
    MBARRIER_WAIT = ("barriers i parity", a.EffectAttrs, L, EXACT, "waits until that phase is over")
    TENSOR_MAP = ("", a.TensorMapAttrs, L, EXACT, "out = a buffer as the bulk copy engine sees it")
    BULK_LOAD = (
        *("tile stage map column row barriers i", a.EffectAttrs, L, EXACT),
        "tile[stage] = the box of map at (row, column), 0 outside; its bytes count at barrier i",
    )
    BULK_STORE = (
        *("map column row tile stage", a.EffectAttrs, L, EXACT),
        "the box of map at (row, column) = tile[stage], unfinished until BULK_WAIT",
    )
    BULK_COMMIT = ("", a.EffectAttrs, L, EXACT, "closes a group of this thread's bulk stores")
    BULK_WAIT = ("", a.WaitAttrs, L, EXACT, "waits until at most attrs.pending groups still read")
    PROXY_FENCE = ("", a.EffectAttrs, L, EXACT, "makes own shared stores visible to the copy engine")
    WGMMA_FENCE = ("accumulator", a.EffectAttrs, L, EXACT, "orders register use before WGMMA")
    WGMMA = (
        *("accumulator x x_index y y_index", a.WgmmaAttrs, L, SUM),
        "accumulator += the product of two shared blocks, in flight until WGMMA_WAIT",
    )
    WGMMA_COMMIT = ("", a.EffectAttrs, L, EXACT, "closes a group of products")
    WGMMA_WAIT = ("accumulator", a.WaitAttrs, L, EXACT, "waits until at most attrs.pending are left")

    __hash__ = object.__hash__

    def __init__(
        self, operands: str, attrs: type | None, forms: Form, mark: Mark, meaning: str
    ) -> None:
        self.operands = tuple(operands.split())
        self.attrs_type = attrs
        self.forms = forms
        self.mark = mark
        self.meaning = meaning


UNARY = (Op.NEG, Op.SQRT, Op.FLOOR, Op.TRUNC, Op.EXP, Op.LOG, Op.SIN, Op.COS, Op.TANH, Op.ERF)
COMPARE = (Op.LT, Op.LE, Op.EQ, Op.NE)
BITWISE = (Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR)
BINARY = (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN, *BITWISE)
ELEMENTWISE = frozenset((*UNARY, *BINARY, *COMPARE, Op.WHERE, Op.CAST, Op.BITCAST))
VIEWS = frozenset((Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SLICE, Op.PAD))
COMMUTATIVE = frozenset((Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.EQ, Op.NE, Op.AND, Op.OR, Op.XOR))
