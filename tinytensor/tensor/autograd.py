"""Turns Tensors and upstream gradients into lazy Tensors of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Self, TypeAlias, TypeVar

from tinytensor.errors import DTypeError, GradientError, ShapeError
from tinytensor.grad import (
    cut,
    device_of,
    gradients,
    make_leaf,
    make_place,
    origins_below,
    origins_on,
    paths_below,
    requires_gradient,
    serial_of_leaf,
)
from tinytensor.ops.attrs import DeviceAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor.base import OWNERS, TensorBase
from tinytensor.tensor.checkpoint import checkpoint
from tinytensor.tensor.companions import accompany
from tinytensor.tensor.custom_function import Function, FunctionContext
from tinytensor.tensor.grad_mode import enable_grad
from tinytensor.tensor.nodes import full_like
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.saved import SavedValue, saved
from tinytensor.tracing import ACTIVE

__all__ = [
    "Autograd",
    "Function",
    "FunctionContext",
    "SavedValue",
    "checkpoint",
    "grad",
    "jvp",
    "saved",
    "value_and_grad",
    "vjp",
]
T = TypeVar("T", bound=TensorBase)
Several: TypeAlias = T | Sequence[T]
Argument = Any  # whatever the user's function takes
Differentiated = Any  # a Tensor, or a tuple or list of Tensors, as the user's function returns it


class Autograd(TensorBase):
    """What a Tensor has to do with gradients."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        """Whether a leaf that requires a gradient is this tensor or goes into it."""
        return requires_gradient(self.uop)

    @requires_grad.setter
    def requires_grad(self, mode: bool) -> None:
        self.requires_grad_(mode)

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor was made by the user, not computed for a gradient to pass through."""
        return not self.requires_grad or OWNERS.get(serial_of_leaf(self.uop)) is self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make this leaf require a gradient, or not; what was computed before does not change."""
        if requires_grad == self.requires_grad:
            return self
        if requires_grad:
            self._become_leaf()
        elif self.is_leaf:
            self.detach_()
        else:
            sentence = "requires_grad_: a computed tensor requires what its operands do"
            raise GradientError(f"{sentence}: shape {self.shape}; it must be a leaf. Use detach().")
        return self

    @property
    def grad(self) -> Self | None:
        """The sum of the gradients that backward() has found for this leaf; None before."""
        _note(self)
        return self._grad  # type: ignore[return-value]  # it is of the class that found it

    @grad.setter
    def grad(self, gradient: TensorBase | None) -> None:
        if gradient is not None:
            _check_like("grad", gradient, self)
            if gradient.dtype is not self.dtype:
                sentence = f"grad: dtypes differ: {gradient.dtype.name} for {self.dtype.name}"
                raise DTypeError(f"{sentence}; they must be equal.")
        _note(self)
        self._grad = gradient

    def detach(self) -> Self:
        """Return a view of all, through which no gradient passes."""
        return self._seen(self._layout().cut_off())

    def detach_(self) -> Self:
        """Let no gradient pass through this tensor from now on."""
        self._look(self._layout().cut_off())
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a leaf with the same values and gradient in memory of its own."""
        if not self.is_leaf:
            sentence = f"deepcopy: the tensor was computed: shape {self.shape}"
            raise GradientError(f"{sentence}; it must be a leaf. Use clone().")
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied._fill(self.detach().uop, self.device, self.requires_grad)
        copied._grad = deepcopy(self._grad, memo)
        return copied

    @property
    def data(self) -> Self:
        """The same as detach(): what is written to it changes a leaf, which stays one."""
        return self.detach()

    @data.setter
    def data(self, source: TensorBase) -> None:
        _note(self)
        mark = self._mark
        self.cell, self.device = source.cell, source.device
        layout = source._layout()
        self._look(layout.marked(mark) if mark > 0 else layout.cut_off())

    def backward(
        self,
        gradient: TensorBase | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Several[Autograd] | None = None,
    ) -> None:
        """Add the gradient of this tensor to `.grad` of each leaf (or input) that it depends on.

        Nothing is computed until a gradient is read, and the graph is never freed by this.

        >>> from tinytensor import Tensor
        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        upstream = _upstream_of("backward", self, gradient)
        if gradient is None:
            accompany(self)
        if ACTIVE.trace is not None:
            ACTIVE.trace.begin_effect()
            ACTIVE.trace.differentiated.append(self.uop)
        paths = paths_below([self.uop])
        if inputs is None:
            serials = dict.fromkeys(map(serial_of_leaf, origins_on(paths)))
            owners = [OWNERS[serial] for serial in serials if serial in OWNERS]
        else:
            owners = _checked_inputs("backward", inputs)
        found = gradients([self.uop], [upstream], [each.uop for each in owners], paths=paths)
        for owner, node in zip(owners, found, strict=True):
            if node is not None:
                _accumulate(owner, _on_device_of(owner, node), create_graph)

    def gradient(self, *targets: T, gradient: TensorBase | None = None) -> list[T]:
        """Return the gradients of this tensor by some targets, as values to compute with."""
        outer = None if gradient is None else [gradient]
        found = grad(self, targets, outer, create_graph=True)
        return [each for each in found if each is not None]


def grad(
    outputs: Several[TensorBase],
    inputs: Several[T],
    grad_outputs: TensorBase | Sequence[TensorBase | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[T | None, ...]:
    """Return the gradients of the outputs' sum by each input, weighted by grad_outputs.

    Raises: GradientError for an input that no output depends on, unless allow_unused (then None)
    or materialize_grads (then zeros).
    """
    roots = _listed(outputs)
    if isinstance(grad_outputs, TensorBase) or grad_outputs is None:
        grad_outputs = [grad_outputs] * len(roots)
    pairs = zip(roots, grad_outputs, strict=True)
    upstreams = [_upstream_of("grad", root, given) for root, given in pairs]
    targets = _checked_inputs("grad", inputs)
    found = gradients([each.uop for each in roots], upstreams, [each.uop for each in targets])
    results: list[T | None] = []
    for number, (target, node) in enumerate(zip(targets, found, strict=True)):
        if node is None and not materialize_grads:
            if not allow_unused:
                sentence = f"grad: no output depends on an input: number {number}"
                raise GradientError(f"{sentence}; each must be used. Pass allow_unused=True.")
            results.append(None)
            continue
        own = full_like(target.uop, 0) if node is None else _on_device_of(target, node)
        results.append(target._made(own if create_graph else cut(own), target.device))
    return tuple(results)


def vjp(
    func: Callable[..., Differentiated], *primals: T
) -> tuple[Differentiated, Callable[[Differentiated], tuple[T, ...]]]:
    """Return func(*primals), and a function from a cotangent of it to those of the primals."""
    places, returned = _traced(func, primals)
    outputs = _listed(returned)

    def pull_back(cotangents: Differentiated) -> tuple[T, ...]:
        pairs = zip(outputs, _listed(cotangents), strict=True)
        pulled = _pull(outputs, [_weight("vjp", each, given) for each, given in pairs], places)
        return tuple([_released(each, places) for each in pulled])

    return _like_returned(returned, [_released(each, places) for each in outputs]), pull_back


def jvp(
    func: Callable[..., Differentiated], primals: Sequence[T], tangents: Sequence[T]
) -> tuple[Differentiated, Differentiated]:
    """Return func(*primals), and how it moves when the primals move by the tangents.

    A vector-Jacobian product is linear in its vector: its own transpose is this product.
    """
    places, returned = _traced(func, primals)
    outputs = _listed(returned)
    vectors = [make_leaf(full_like(each.uop, 0)) for each in outputs]
    pulled = [each.uop for each in _pull(outputs, vectors, places)]
    moves = [_weight("jvp", each, given) for each, given in zip(primals, tangents, strict=True)]
    found = gradients(pulled, moves, vectors)
    pushed = [
        each._made(full_like(each.uop, 0) if node is None else node, each.device)
        for each, node in zip(outputs, found, strict=True)
    ]
    groups = (outputs, pushed)
    kept = [[_released(each, places, vectors) for each in group] for group in groups]
    return _like_returned(returned, kept[0]), _like_returned(returned, kept[1])


def value_and_grad(
    func: Callable[..., T], argnums: int | tuple[int, ...] = 0
) -> Callable[..., tuple[T, Any]]:  # Any: one Tensor, or a tuple for several argnums
    """Return a function that gives func's value, of one element, and its gradients by arguments.

    >>> from tinytensor import Tensor, autograd
    >>> value, slope = autograd.value_and_grad(lambda x: (x * x).sum())(Tensor([3.0]))
    >>> value.item(), slope.tolist()
    (9.0, [6.0])
    """
    numbers = (argnums,) if isinstance(argnums, int) else argnums

    def differentiated(*args: Argument) -> tuple[T, Any]:
        def of_chosen(*chosen: Argument) -> T:
            filled = list(args)
            for number, each in zip(numbers, chosen, strict=True):
                filled[number] = each
            return func(*filled)

        places, value = _traced(of_chosen, [args[number] for number in numbers])
        upstream = _implied_upstream("value_and_grad", value)
        pulled = [_released(each, places) for each in _pull([value], [upstream], places)]
        return _released(value, places), pulled[0] if isinstance(argnums, int) else tuple(pulled)

    return differentiated


# Functions of places.
def _traced(func: Callable[..., Any], primals: Sequence[T]) -> tuple[list[T], Any]:
    """Call a function on places for its arguments; return them and what it returned."""
    for each in primals:
        if not each.dtype.is_float:
            sentence = f"grad: only floats have a gradient: dtype is {each.dtype.name}"
            raise DTypeError(f"{sentence}; it must be a float dtype.")
    with enable_grad():
        places = [each._made(make_place(each.uop), each.device) for each in primals]
        return places, func(*places)


def _pull(outputs: Sequence[TensorBase], weights: Sequence[UOp], places: Sequence[T]) -> list[T]:
    """Return the gradients by places, zeros where no output depends on one."""
    found = gradients([each.uop for each in outputs], weights, [each.uop for each in places])
    with enable_grad():
        return [
            place._made(full_like(place.uop, 0) if node is None else node, place.device)
            for place, node in zip(places, found, strict=True)
        ]


def _released(tensor: T, places: Sequence[TensorBase], inner: Sequence[UOp] = ()) -> T:
    """Return a tensor that requires a gradient only if more than the places asks for one.

    Nor do leaves of the computation itself ask for one.
    """
    others = {*origins_below([tensor.uop])}.difference([each.uop for each in places], inner)
    return tensor._wrap(tensor.uop if others else cut(tensor.uop))


def _like_returned(returned: Differentiated, tensors: Sequence[TensorBase]) -> Differentiated:
    return tensors[0] if isinstance(returned, TensorBase) else type(returned)(tensors)


# Checks.
def _listed(tensors: Several[T]) -> list[T]:
    return [tensors] if isinstance(tensors, TensorBase) else list(tensors)


def _checked_inputs(who: str, inputs: Several[T]) -> list[T]:
    listed = _listed(inputs)
    if not listed:
        raise GradientError(f"{who}: inputs is empty: (); there must be 1 or more.")
    for number, each in enumerate(listed):
        if not requires_gradient(each.uop):
            sentence = f"{who}: an input requires no gradient: number {number}"
            raise GradientError(f"{sentence}; each must. Use requires_grad_().")
    return listed


def _upstream_of(who: str, output: TensorBase, given: TensorBase | None) -> UOp:
    if not requires_gradient(output.uop):
        sentence = f"{who}: the tensor requires no gradient: shape {output.shape}"
        raise GradientError(f"{sentence}; a leaf with requires_grad=True must go into it.")
    return _implied_upstream(who, output) if given is None else _weight(who, output, given)


def _implied_upstream(who: str, output: TensorBase) -> UOp:
    if output.numel() != 1:
        sentence = f"{who}: only one element has an implied gradient: shape {output.shape}"
        raise GradientError(f"{sentence}; pass the gradient of each element.")
    return full_like(output.uop, 1)


def _weight(who: str, output: TensorBase, given: TensorBase) -> UOp:
    _check_like(who, given, output)
    return cast(given.uop, output.dtype)


def _check_like(who: str, gradient: TensorBase, tensor: TensorBase) -> None:
    if gradient.shape != tensor.shape:
        sentence = f"{who}: shapes differ: gradient {gradient.shape}, tensor {tensor.shape}"
        raise ShapeError(f"{sentence}; they must be equal.")
    check_devices(who, [gradient, tensor])


# Results.
def _accumulate(owner: TensorBase, gradient: UOp, create_graph: bool) -> None:
    """Add to a leaf's gradient: in place, unless it is to be differentiated itself."""
    _note(owner)
    known = owner._grad
    total = gradient if known is None else UOp(Op.ADD, owner.dtype, (known.uop, gradient))
    if known is None or create_graph:
        owner._grad = owner._made(total if create_graph else cut(total), owner.device)
    else:
        known._write("backward", cut(total))


def _note(tensor: TensorBase) -> None:
    if ACTIVE.trace is not None:
        ACTIVE.trace.note(tensor)


def _on_device_of(owner: TensorBase, gradient: UOp) -> UOp:
    """Bring home the gradient of a tensor made of constants, which no COPY knows the home of."""
    if device_of(owner.uop) is not None or device_of(gradient) in (None, owner.device):
        return gradient
    return UOp(Op.COPY, gradient.dtype, (gradient,), DeviceAttrs(owner.device))
