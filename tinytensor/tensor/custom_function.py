"""Turns a user's pair of functions, forward and backward, into a computation with that gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytensor.errors import GradientError, ShapeError
from tinytensor.grad import Gradients, requires_gradient, route
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.grad_mode import MODE, enable_grad, no_grad
from tinytensor.tensor.nodes import full_like

Content = Any  # what a user's function takes and gives: Tensors and anything else


class FunctionContext:
    """What one call of a Function keeps for its backward; any attribute may be set."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.results: dict[UOp, UOp] = {}
        self._saved: list[tuple[TensorBase, UOp] | None] = []
        self._undifferentiated: tuple[TensorBase, ...] = ()
        self._fills_in = True

    def save_for_backward(self, *tensors: TensorBase | None) -> None:
        """Keep tensors as they are now: inputs, results, or what was computed between."""
        self._saved = [None if each is None else (each, each.uop) for each in tensors]

    @property
    def saved_tensors(self) -> tuple[TensorBase | None, ...]:
        """What was saved; inputs and results pass gradients on as they do outside."""
        return tuple([None if each is None else self._restored(*each) for each in self._saved])

    def _restored(self, saved: TensorBase, uop: UOp) -> TensorBase:
        return saved._made(self.results.get(uop, uop), saved.device)

    def mark_non_differentiable(self, *tensors: TensorBase) -> None:
        """Say which results have no gradient."""
        self._undifferentiated = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether backward gets zeros, or None, for a result that nobody used."""
        self._fills_in = value

    def gives_gradient(self, output: Content) -> bool:
        """Tell whether one of the results has a gradient."""
        marked = any(output is each for each in self._undifferentiated)
        return isinstance(output, TensorBase) and output.dtype.is_float and not marked

    def shown(self, output: Content, upstream: UOp | None) -> TensorBase | None:
        """Return a result's upstream gradient as backward gets it."""
        if not isinstance(output, TensorBase) or (upstream is None and not self._fills_in):
            return None
        return output._made(upstream or full_like(output.uop, 0), output.device)


class Function:
    """A computation with a gradient of its own: subclass it, and call it by `apply`.

    >>> from tinytensor import Tensor, autograd
    >>> class Double(autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, upstream):
    ...         return upstream * 3
    >>> x = Tensor([1.0], requires_grad=True)
    >>> Double.apply(x).backward()
    >>> x.grad.tolist()
    [3.0]
    """

    @staticmethod
    def forward(ctx: Content, *args: Content) -> Content:
        """Return the results; gets ctx first, unless setup_context is overridden."""
        raise NotImplementedError("function: forward is missing; a subclass must define it.")

    @staticmethod
    def setup_context(ctx: FunctionContext, inputs: tuple[Content, ...], output: Content) -> None:
        """Save what backward needs, for a forward without ctx."""

    @staticmethod
    def backward(ctx: FunctionContext, *grad_outputs: Content) -> Content:
        """Return the gradient of each argument of forward, None for what has none."""
        raise NotImplementedError("function: backward is missing; a subclass must define it.")

    @classmethod
    def apply(cls, *args: Content) -> Content:
        """Call forward, so that gradients of its results go through backward."""
        needed = [isinstance(each, TensorBase) and requires_gradient(each.uop) for each in args]
        ctx = FunctionContext(tuple(needed))
        with no_grad():
            if cls.setup_context is Function.setup_context:
                returned = cls.forward(ctx, *args)
            else:
                returned = cls.forward(*args)
                cls.setup_context(ctx, args, returned)
        if not (MODE.get() and any(needed)):
            return returned
        is_single = isinstance(returned, TensorBase)
        outputs = _routed(cls, ctx, args, [returned] if is_single else list(returned))
        return outputs[0] if is_single else tuple(outputs)


def _routed(
    function: type[Function], ctx: FunctionContext, args: Sequence[Content], outputs: list[Content]
) -> list[Content]:
    """Return the outputs, those that have a gradient as nodes that call the function's backward."""
    inputs = [each.uop for each in args if isinstance(each, TensorBase)]
    places = [place for place, each in enumerate(outputs) if ctx.gives_gradient(each)]
    values = [outputs[place].uop for place in places]

    def rule(results: Sequence[UOp], upstreams: Gradients) -> Gradients:
        pairs = zip(values, results, strict=True)
        # An input that is returned as it came was saved as an input.
        ctx.results = {value: result for value, result in pairs if value not in inputs}
        by_place = dict(zip(places, upstreams, strict=True))
        try:
            with enable_grad():
                given = [ctx.shown(each, by_place.get(place)) for place, each in enumerate(outputs)]
                return _checked_gradients(args, function.backward(ctx, *given))
        finally:
            ctx.results = {}  # each would keep itself alive through its node's Call

    routed = list(outputs)
    for place, node in zip(places, route(values, inputs, rule), strict=True):
        routed[place] = outputs[place]._wrap(node)
    return routed


def _checked_gradients(args: Sequence[Content], returned: Content) -> list[UOp | None]:
    """Return what backward returned, for the Tensors among the arguments of forward."""
    found = returned if isinstance(returned, tuple) else (returned,)
    if len(found) < len(args) or any(each is not None for each in found[len(args) :]):
        sentence = f"backward: number of gradients: {len(found)} for {len(args)} arguments"
        raise GradientError(f"{sentence}; each argument of forward must get one, or None.")
    gradients: list[UOp | None] = []
    for number, (each, gradient) in enumerate(zip(args, found, strict=False)):
        if not isinstance(each, TensorBase):
            continue
        if gradient is not None and gradient.shape != each.shape:
            sentence = f"backward: shapes differ: gradient {gradient.shape}, argument {number}"
            raise ShapeError(f"{sentence} {each.shape}; they must be equal.")
        gradients.append(None if gradient is None else cast(gradient.uop, each.dtype))
    return gradients
