"""Lists programs whose CUDA kernels are compiled without a GPU, each with sizes to interpret at.

A leaf is a buffer without memory, so that a program may be as large as it likes.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tinytensor import Tensor, dtypes
from tinytensor.ops.uop import buffer

F16, BF16, F32, F64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
I8, U8, I32, I64, BOOL = dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.bool


@dataclass(frozen=True)
class Case:
    """A program over sizes: those it is compiled at and, if it is interpreted too, small ones."""

    family: str
    name: str
    program: Callable[..., Tensor | tuple[Tensor, ...]]
    sizes: tuple[int, ...]
    small: tuple[int, ...] | None = None

    def outputs(self, sizes):
        """The program's tensors, not computed."""
        made = self.program(*sizes)
        return made if isinstance(made, tuple) else (made,)


def leaf(dtype, *shape):
    return Tensor._made(buffer(dtype, shape, "CUDA"), "CUDA")


# Programs.
def linear(dtype, m, n, k):
    return leaf(dtype, m, k).matmul(leaf(dtype, n, k).T) + leaf(dtype, n)


def gram(dtype, n):
    x = leaf(dtype, n, n)
    return (x @ x.T + 1.0).relu()


def factor(dtype, layout, rows, columns, *batch):
    if layout == "n":
        return leaf(dtype, *batch, rows, columns)
    return leaf(dtype, *batch, columns, rows).transpose(-1, -2)


def product(dtype, layouts, m, n, k):
    return factor(dtype, layouts[0], m, k) @ factor(dtype, layouts[1], k, n)


def residual(dtype, m, n, k):
    """Two results of one product, one of them turned, behind a bias for each row."""
    y = product(dtype, "nt", m, n, k) + leaf(dtype, m, 1)
    return (y + leaf(dtype, m, n)).relu(), y.T.cast(F32)


def prologue(dtype, m, n, k):
    return leaf(dtype, m, k).relu() @ (leaf(I8, n, k).cast(dtype) + 1.0).T


def batched(dtype, m, n, k):
    return leaf(dtype, 3, 1, m, k) @ factor(dtype, "t", k, n, 2)


def padded(dtype, m, n, k):
    return leaf(dtype, m - 2, k).pad((0, 0, 1, 1)) @ leaf(dtype, k, n)


def chain(n, columns):
    x, a, b, c = leaf(BF16, n, columns), *[leaf(BF16, columns) for _ in range(3)]
    return (x * a + b).gelu("tanh") * c


def shifted(dtype, n):
    return (leaf(dtype, n) + 1).relu()


def functions(dtype, n):
    """Every function that takes floats and needs no large tables, in one kernel."""
    x = leaf(dtype, n)
    made = [x.exp(), x.square().log(), x.tanh(), x.erf(), x.square().sqrt(), x.floor(), x % 3.0]
    return sum(made, 1 / x)


def circular(dtype, n):
    x = leaf(dtype, n)
    return x.sin() + x.cos()


def integers(dtype, n):
    x, y = leaf(dtype, n), leaf(dtype, n)
    return x // y - x % y * ((x << 3) ^ (~x & y)) + (x >> 1).maximum(y)


def casts(dtype, n):
    """There and back by each dtype, each time a little further."""
    x = leaf(dtype, n)
    for other in (I64, F64, I8, F32, U8, F16, BF16, BOOL):
        x = x.cast(other).cast(dtype) * 3 + x
    return x


def choice(n):
    x, y = leaf(F32, n), leaf(F32, n)
    return x.where((x < y) & leaf(BOOL, n), y * 2.0).minimum(y)


def concatenated(n):
    return Tensor.cat([leaf(F32, n), leaf(F32, n + 3) * 2.0]), leaf(F32, n).pad((1, 2), value=5.0)


def sliced(n):
    return leaf(F32, n)[3:] + 1.0, leaf(F32, n).flip(0) + 1.0, leaf(F32, n)[::2] + 1.0


def turned(dtype, rows, columns):
    return leaf(dtype, rows, columns).T + 1


def crossed(dtype, rows, columns):
    return leaf(dtype, rows, 1) * leaf(dtype, columns) + leaf(dtype, rows, columns)


def softmax(dtype, rows, columns):
    return leaf(dtype, rows, columns).softmax(1)


def layer_norm(rows, columns):
    x, weight, bias = leaf(BF16, rows, columns).float(), leaf(BF16, columns), leaf(BF16, columns)
    centered = x - x.mean(1, keepdim=True)
    scale = (centered.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    return (centered * scale * weight + bias).relu().bfloat16()


def rms_norm(rows, columns):
    x, weight = leaf(BF16, rows, columns).float(), leaf(BF16, columns)
    scale = (x.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    return (x * scale * weight).bfloat16()


def residual_norm(dtype, rows, columns):
    """Two results, one an element and one a row each, beside the residual itself."""
    x = leaf(dtype, rows, columns) + leaf(dtype, rows, columns)
    centered = x - x.mean(1, keepdim=True)
    spread = centered.square().mean(1, keepdim=True)
    return x, (centered * leaf(dtype, columns) / (spread + 1.0).sqrt()).relu(), spread


def softmax_gradient(dtype, rows, columns):
    x, upstream = leaf(dtype, rows, columns), leaf(dtype, rows, columns)
    shares = (x - x.amax(1, keepdim=True)).exp()
    shares = shares / shares.sum(1, keepdim=True)
    return shares * (upstream - (upstream * shares).sum(1, keepdim=True))


def log_of_sums(dtype, rows, columns):
    return leaf(dtype, rows, columns).logsumexp(1)


def column_shares(dtype, rows, columns):
    return leaf(dtype, rows, columns).softmax(0)


def row_folds(dtype, rows, columns):
    return leaf(dtype, rows, columns).sum(1), leaf(dtype, rows, columns).argmax(1)


def column_folds(dtype, rows, columns):
    return leaf(dtype, rows, columns).sum(0), leaf(dtype, rows, columns).amax(0)


def total(dtype, n):
    return leaf(dtype, n).sum()


def position(rows, columns):
    return leaf(F32, rows, columns).argmax(1)


def variance(rows, columns):
    return leaf(F32, rows, columns).var(1), leaf(BOOL, rows, columns).any(1)


def matrix_vector(dtype, rows, columns):
    return leaf(dtype, rows, columns) @ leaf(dtype, columns)


def single():
    return leaf(F32) * leaf(F32) + 1.0


# Cases.
def of(dtype, program, *more):
    """A program of a dtype, under a name that tells it."""
    return functools.partial(program, dtype, *more)


def case(family, program, sizes, small=None, *more):
    inner = program.func if isinstance(program, functools.partial) else program
    given = [*program.args] if isinstance(program, functools.partial) else []
    words = [inner.__name__, *[getattr(each, "name", each) for each in given], *sizes]
    return Case(family, "-".join(map(str, words)), program, sizes, small)


SMALL_PRODUCT = (33, 34, 20)
LINES = [
    case("lines", of(F16, linear), (1024, 1024, 768), (40, 36, 24)),
    *[case("lines", of(F32, gram), (n,)) for n in (64, 512, 4096)],
    case("lines", of(F16, gram), (4096,), (33,)),
    case("lines", of(F32, shifted), (2**28,)),
    *[case("lines", of(BF16, product, "nn"), (n, n, n)) for n in (4096, 8192)],
    case("lines", of(F16, product, "nn"), (2048, 2048, 2048)),
    case("lines", chain, (16384, 8192), (5, 24)),
    *[case("lines", of(dtype, softmax), (8192, 8192)) for dtype in (BF16, F32)],
    case("lines", layer_norm, (8192, 4096), (3, 40)),
    case("lines", rms_norm, (8192, 4096), (3, 40)),
    case("lines", of(F32, total), (2**28,)),
    case("lines", position, (8192, 8192), (3, 70)),
]
LAYOUTS = [
    case(f"layouts of {dtype.name}", of(dtype, product, layouts), sizes, small)
    for dtype in (F16, F32, BF16)
    for layouts in ("nn", "nt", "tn", "tt")
    for sizes, small in [((515, 387, 259), None), ((512, 384, 256), SMALL_PRODUCT)]
    if dtype is not BF16 or layouts in ("nn", "tt")
]
PRODUCTS = [
    *[
        case("products", of(dtype, residual), (256, 200, 128), SMALL_PRODUCT)
        for dtype in (F16, F32)
    ],
    *[
        case("products", of(dtype, prologue), (256, 200, 128), SMALL_PRODUCT)
        for dtype in (BF16, F32)
    ],
    *[case("products", of(dtype, batched), (64, 64, 64), (9, 10, 11)) for dtype in (F16, F32)],
    *[case("products", of(dtype, padded), (66, 64, 64), (10, 9, 12)) for dtype in (F16, F32)],
    *[case("products", of(dtype, product, "nt"), (96, 80, 64), (17, 18, 9)) for dtype in (I8, I64)],
    *[case("products", of(F64, product, each), (96, 80, 64), (17, 18, 9)) for each in ("nt", "tn")],
]
POINTWISE = [
    *[
        case("pointwise", of(dtype, shifted), (2**20 + 3,), (300,))
        for dtype in (F16, F64, I8, dtypes.uint64)
    ],
    *[case("pointwise", of(dtype, integers), (5000,), (50,)) for dtype in (I32, U8, I64)],
    *[case("pointwise", of(dtype, casts), (5000,), (70,)) for dtype in (F32, F64, BF16, I32)],
    case("pointwise", choice, (5000,), (70,)),
    case("pointwise", concatenated, (5000,), (70,)),
    case("pointwise", sliced, (5000,), (70,)),
    case("pointwise", single, (), ()),
    *[case("pointwise", of(dtype, crossed), (500, 260), (5, 12)) for dtype in (F32, BF16)],
    *[case("pointwise", of(dtype, turned), (512, 512), (64, 40)) for dtype in (F32, BF16, I8)],
]
FUNCTIONS = [
    *[case("functions", of(dtype, functions), (5000,), (70,)) for dtype in (F16, BF16, F32, F64)],
    *[case("functions", of(dtype, circular), (5000,), (70,)) for dtype in (F16, F32, F64)],
]
REDUCTIONS = [
    *[
        case("reductions", of(dtype, fold), sizes, small)
        for fold in (row_folds, column_folds)
        for dtype in (F32, BF16, I32)
        for sizes, small in [((3000, 1100), (5, 33)), ((70, 70), None)]
    ],
    *[case("reductions", of(F64, fold), (300, 300)) for fold in (row_folds, column_folds)],
    case("reductions", variance, (1000, 1000), (3, 40)),
    *[case("reductions", of(dtype, total), (2**20 + 3,), (500,)) for dtype in (F16, I32)],
    *[case("reductions", of(dtype, matrix_vector), (300, 520), (5, 72)) for dtype in (F16, F32)],
    *[
        case("reductions", of(BF16, softmax), shape)
        for shape in ((4096, 128), (4096, 1000), (64, 2**17))
    ],
]
ROWS = [
    *[
        case("rows", of(dtype, program), sizes, small)
        for program in (residual_norm, log_of_sums)
        for dtype in (F32, BF16)
        for sizes, small in [((4096, 1024), (5, 40)), ((16, 2**17), None), ((5000, 33), (3, 33))]
    ],
    *[
        case("rows", of(BF16, softmax_gradient), sizes, small)
        for sizes, small in [((8192, 4096), (5, 40)), ((4096, 128), (9, 8))]
    ],
    case("rows", of(F32, column_shares), (200, 512), (9, 20)),
]
WIDE = [
    case("64-bit indices", of(I8, shifted), (2**32 + 5,)),
    case("64-bit indices", of(F16, linear), (65536, 65536, 1024)),
    case("64-bit indices", of(F32, product, "tn"), (65536, 65536, 64)),
    case("64-bit indices", of(F32, row_folds), (2**17, 2**15)),
    case("64-bit indices", of(F32, total), (2**32,)),
    case("64-bit indices", of(BF16, turned), (2**16, 2**16)),
]

CASES = [*LINES, *LAYOUTS, *PRODUCTS, *POINTWISE, *FUNCTIONS, *REDUCTIONS, *ROWS, *WIDE]
FAMILIES = tuple(dict.fromkeys(each.family for each in CASES))
