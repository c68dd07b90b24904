"""Describes the functions between and inside the layers of a network, and losses."""

from __future__ import annotations

from typing import Any

from extra.coverage.elementwise import unary
from extra.coverage.record import (
    FIXED_SHAPES,
    UNSIGNED,
    Example,
    Record,
    composed,
    function,
    on,
)

PATH = "nn.functional"
WINDOWED = "refused by shape"


def pooled(name: str, axes: int, *options: dict[str, Any]) -> Record:
    """Return a record of pooling over windows."""
    places = " ".join(["7", "6"][:axes])
    shape = f"2 3 {places} distinct" if name.startswith("max") else f"2 3 {places}"
    plain = [on(shape, kernel_size=2), on(shape, kernel_size=3, stride=2, padding=1)]
    tolerance = composed(0) if name.startswith("max") else composed(12)
    examples = (*plain, *[on(shape, kernel_size=3, **each) for each in options])
    return Record(f"{PATH}.{name}_pool{axes}d", examples, tolerance, is_wider=True)


def loss(name: str, kinds: str, *options: dict[str, Any], **more: Any) -> Record:  # noqa: ANN401 - what a Record takes
    """Return a record of a loss of two operands of one shape."""
    shapes = [f"3 4 {kind}" for kind in kinds.split()]
    reductions = [{"reduction": each} for each in ("mean", "sum", "none")]
    examples = tuple([on(*shapes, **each) for each in (*reductions, *options)])
    return Record(f"{PATH}.{name}", examples, composed(40), **more)


def normalized(name: str, *examples: Example, **more: Any) -> Record:  # noqa: ANN401 - what a Record takes
    """Return a record of a normalization."""
    return Record(f"{PATH}.{name}", examples, composed(60), broadcast=FIXED_SHAPES, **more)


def weighted(library: Any, x: Any, target: Any, weight: Any) -> Any:  # noqa: ANN401 - either library
    """Call the cross entropy with weights of classes."""
    return library.nn.functional.cross_entropy(x, target, weight=weight, label_smoothing=0.1)


def transformed(name: str) -> Any:  # noqa: ANN401 - a call of either library
    """Return the call of a normalization with a weight and a bias."""

    def call(library: Any, x: Any, weight: Any, bias: Any) -> Any:  # noqa: ANN401 - either library
        function = getattr(library.nn.functional, name)
        return function(x, 2 if name == "group_norm" else (4,), weight=weight, bias=bias)

    return call


def trained(library: Any, x: Any, weight: Any, bias: Any) -> Any:  # noqa: ANN401 - either library
    """Call batch_norm as in training."""
    return library.nn.functional.batch_norm(x, None, None, weight, bias, training=True)


ACTIVATIONS = [
    *unary("relu6 hardtanh", tolerance=UNSIGNED, path=PATH),
    *unary(
        "hardsigmoid",
        "wide",
        composed(4),
        path=PATH,
        slope_error=2.0**-24,
        note="PyTorch's gradient rounds 1/6 to float32",
    ),
    *unary("hardswish", "wide", composed(4), path=PATH),
    *unary("leaky_relu", "any", function(0.5), [{}, {"negative_slope": 0.25}], path=PATH),
    *unary("elu celu", "any", composed(8), [{}, {"alpha": 0.5}], path=PATH),
    *unary("selu mish softsign tanhshrink logsigmoid", "any", composed(12), path=PATH),
    *unary("silu", "any", composed(8), path=PATH),
    *unary("softplus", "wide", composed(8), [{}, {"beta": 2.0, "threshold": 4.0}], path=PATH),
    *unary("gelu", "any", composed(12), [{}, {"approximate": "tanh"}], path=PATH),
]
SCORES = ("5 4 any", "5 below4 int64")
PLACES = ("2 4 3 any", "2 3 below4 int64")
INDEXED = (
    *[on(*SCORES, reduction=each) for each in ("mean", "sum", "none")],
    on(*PLACES),
    on(*SCORES, ignore_index=1),
)
CE = (
    *INDEXED,
    on(*SCORES, label_smoothing=0.25),
    on("5 4", "5 4 share"),
    on(*SCORES, "4 positive", call=weighted),
)
LOSSES = [
    Record(
        f"{PATH}.cross_entropy",
        CE,
        composed(40),
        broadcast=FIXED_SHAPES,
        zero_dim=(on("4 any", "below4 int64"),),
    ),
    Record(
        f"{PATH}.nll_loss",
        INDEXED,
        composed(12),
        broadcast=FIXED_SHAPES,
        zero_dim=(on("4 any", "below4 int64"),),
    ),
    loss("mse_loss", "any any", broadcast=FIXED_SHAPES),
    loss("l1_loss", "any any", broadcast=FIXED_SHAPES),
    loss("smooth_l1_loss", "any any", {"beta": 0.5}, broadcast=FIXED_SHAPES),
    loss("huber_loss", "any any", {"delta": 0.5}, broadcast=FIXED_SHAPES),
    loss(
        "kl_div",
        "any share",
        {"reduction": "batchmean"},
        {"log_target": True},
        broadcast=FIXED_SHAPES,
    ),
    loss(
        "binary_cross_entropy",
        "share share",
        broadcast=FIXED_SHAPES,
        slope_error=1e-9,
        note="PyTorch's second derivative adds 1e-12 to a divisor",
    ),
    loss("binary_cross_entropy_with_logits", "any share", broadcast=FIXED_SHAPES),
]
NORMALIZATIONS = [
    normalized(
        "layer_norm",
        on("3 4", arguments=[(4,)]),
        on("2 3 4", "4", "4", call=transformed("layer_norm")),
    ),
    normalized(
        "rms_norm",
        on("3 4", arguments=[(4,)]),
        on(
            "3 4", "4", call=lambda library, x, w: library.nn.functional.rms_norm(x, (4,), w, 0.125)
        ),
    ),
    normalized(
        "group_norm",
        on("2 4 3", arguments=[2]),
        on("2 4 3", "4", "4", call=transformed("group_norm")),
    ),
    normalized(
        "batch_norm",
        on("3 4 5", "4", "4", call=trained),
        on("3 4", "4", "4 positive"),
        empty=(on("0 4 2", "4", "4 positive"),),
    ),
    Record(f"{PATH}.normalize", (on("3 4"), on("3 4", p=1, dim=0)), composed(20)),
]
POOLS = [
    pooled("max", 1, {"dilation": 2}, {"ceil_mode": True}),
    pooled("max", 2, {"dilation": 2}, {"ceil_mode": True}, {"return_indices": True}),
    pooled("avg", 1, {"ceil_mode": True}, {"padding": 1, "count_include_pad": False}),
    pooled("avg", 2, {"ceil_mode": True}, {"divisor_override": 3}),
]
RECORDS = [*ACTIVATIONS, *LOSSES, *NORMALIZATIONS, *POOLS]
