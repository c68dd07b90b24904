"""Describes what makes tensors of nothing, converts them, and shows parts of them."""

from __future__ import annotations

from extra.coverage.record import (
    DTYPES,
    FIXED_SHAPES,
    INTEGER_RESULT,
    Example,
    Library,
    Record,
    Result,
    on,
)

NO_OPERAND = "no operand"


def maker(name: str, *calls: tuple[Result, ...], dtypes: str = "float16 int64 bool") -> Record:
    """Return a record of a function of numbers, in its own dtype and in given ones."""
    examples = [on(call=made(name, each)) for each in calls]
    examples += [on(call=made(name, calls[0], dtype)) for dtype in dtypes.split()]
    fixed = {"empty": NO_OPERAND, "zero_dim": NO_OPERAND, "layouts": NO_OPERAND}
    return Record(name, tuple(examples), gradient=NO_OPERAND, broadcast=NO_OPERAND, **fixed)


def made(name: str, arguments: tuple[Result, ...], dtype: str = "") -> Result:
    """Return a call of a function of numbers."""

    def call(library: Library) -> Result:
        options = {"dtype": getattr(library, dtype)} if dtype else {}
        return getattr(library, name)(*arguments, **options)

    return call


def like(name: str, *arguments: float) -> Record:
    """Return a record of a function that takes over a shape, and a dtype unless one is given."""

    def typed(library: Library, x: Result) -> Result:
        return getattr(library, name)(x, *arguments, dtype=library.float64)

    examples = (on("3 4", arguments=arguments), on("3 4", call=typed))
    return Record(name, examples, gradient="a constant")


def converted(library: Library, x: Result) -> Result:
    """Convert to every dtype."""
    return [x.to(getattr(library, dtype)) for dtype in DTYPES]


def parts(library: Library, x: Result) -> Result:
    """Index with numbers, slices, None and an ellipsis."""
    del library
    chosen = [x[1], x[-1, ..., 2], x[1:3, ::2], x[:, None, -3:-1], x[..., 1:1], x[2:0:1]]
    return [*chosen, x[:, 3, ::3]]


def paired(name: str, *shapes: str) -> Record:
    """Return a record of a method that takes over the shape of another tensor."""

    def call(library: Library, x: Result, y: Result) -> Result:
        del library
        return getattr(x, name)(y)

    layouts = "as reshape" if name == "view_as" else ""
    return Record(f"Tensor.{name}", (on(*shapes, call=call),), layouts=layouts)


def property_of(name: str) -> Record:
    """Return a record of an attribute that is a view."""
    matrix = on("3 4", call=lambda library, x: getattr(x, name))
    return Record(f"Tensor.{name}", (matrix,), zero_dim="a matrix's")


def laid(name: str) -> Record:
    """Return a record of what tells how a tensor and a view of it lie in memory."""
    examples = (on("3 4"), on("3 4 5", call=lambda library, x: getattr(x[1:, 2], name)()))
    nothing = "no element lies anywhere"
    return Record(f"Tensor.{name}", examples, gradient=INTEGER_RESULT, empty=nothing)


def plain(names: str, *examples: Example, **more: Result) -> list[Record]:
    """Return records of methods of one operand."""
    return [Record(f"Tensor.{name}", examples, **more) for name in names.split()]


RECORDS = [
    maker("arange", (5,), (2, 9, 3), (1.0, 2.0, 0.25), (7, -2, -2), dtypes="float16 int64 int8"),
    maker("eye", (3,), (2, 4)),
    maker("zeros", (2, 3), ((2, 0),), ((),)),
    maker("ones", (2, 3), ((2, 0),), ((),)),
    maker("full", ((2, 3), 1.5), ((2,), 7), ((), True)),
    like("zeros_like"),
    like("ones_like"),
    like("full_like", 2),
    Record("Tensor.to", (on("3 4 positive", call=converted),)),
    *plain("float double half bfloat16 int long bool", on("3 4")),
    Record(
        "Tensor.__getitem__",
        (on("4 5 6", call=parts),),
        zero_dim=(on("", arguments=[()]),),
        empty=(on("0 3", arguments=[(slice(None), 1)]),),
    ),
    *[Record(f"atleast_{n}d", (on("3 4"), on("3"))) for n in (1, 2, 3)],
    *plain("ravel clone contiguous", on("3 4")),
    *[laid(name) for name in ("stride", "storage_offset", "is_contiguous")],
    *plain("t", on("3 4"), on("4")),
    property_of("T"),
    property_of("mT"),
    Record(
        "broadcast_to", (on("3 1", arguments=[(2, 3, 4)]),), empty=(on("1 0", arguments=[(3, 0)]),)
    ),
    paired("expand_as", "3 1", "2 3 4"),
    paired("view_as", "3 4", "2 6"),
    paired("reshape_as", "3 4", "2 6"),
    Record(
        "broadcast_tensors",
        (on("3 1", "2 3 4"),),
        broadcast=(on("3 1", "4", "2 1 1"),),
        empty=(on("0 1", "2 1 4"),),
    ),
    Record(
        "meshgrid",
        (on("3", "4", call=lambda t, x, y: t.meshgrid(x, y, indexing="ij")),),
        broadcast=FIXED_SHAPES,
    ),
    Record(
        "Tensor.equal",
        (on("3 4", "3 4"), on("3 4 ties", "3 4 ties")),
        gradient=INTEGER_RESULT,
        broadcast=(on("3 1", "3 4"),),
    ),
    Record(
        "Tensor.allclose",
        (on("3 4", "3 4"), on("3 4", "3 4", atol=10)),
        gradient=INTEGER_RESULT,
        broadcast=(on("3 1", "3 4", atol=10),),
    ),
]
