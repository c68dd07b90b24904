"""Turns attributes that hold parameters, buffers and other modules into a tree with names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import INSIDE, DTypeError
from tinytensor.nn.parameter import Parameter, clear_gradients, exchange
from tinytensor.provenance import COLLECTING
from tinytensor.tensor.casting import target_of
from tinytensor.tensor.grad_mode import no_grad
from tinytensor.tensor.signatures import explain_methods
from tinytensor.tensor.tensor import Tensor
from tinytensor.tracing import ACTIVE


class _Changes:
    """Counts the changes of all modules' attributes, for who keeps what depends on them."""

    count = 0


CHANGES = _Changes()
REGISTRIES = ("_parameters", "_buffers", "_modules")
Target = DType | str | Tensor
Argument = Any  # whatever a forward takes and gives


class IncompatibleKeys(NamedTuple):  # unpacked by who calls load_state_dict, as in PyTorch
    """The keys by which a state and a module differ."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def joined(path: str, name: str) -> str:
    """Return the name of something inside a module: `0.weight`."""
    return f"{path}.{name}" if path else name


class Module:
    """A part of a network: what it is made of are its attributes, what it computes is `forward`.

    A Parameter, a Module or (by `register_buffer`) a Tensor that becomes an attribute is found
    again by `parameters()`, `state_dict()`, `to()` and the like, under PyTorch's names.

    >>> from tinytensor import Tensor, nn
    >>> class Doubled(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner = nn.Linear(3, 2, bias=False)
    ...
    ...     def forward(self, x):
    ...         return self.inner(x) * 2
    >>> Doubled()(Tensor.zeros(4, 3)).shape
    (4, 2)
    >>> list(Doubled().state_dict())
    ['inner.weight']
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _unsaved: set[str]  # buffers that are no part of the state

    def __init__(self) -> None:
        registries: dict[str, object] = {name: {} for name in REGISTRIES}
        self.__dict__.update(registries, training=True, _unsaved=set())

    def __init_subclass__(cls, **options: Argument) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith(INSIDE):
            explain_methods(cls, [cls])

    def forward(self, *args: Argument, **options: Argument) -> Argument:
        """Compute the module's result; each subclass has its own."""
        name = type(self).__name__
        sentence = f"forward: the module computes nothing: {name}"
        raise NotImplementedError(f"{sentence}; the class must define forward.")

    def __call__(self, *args: Argument, **options: Argument) -> Argument:
        """Return what forward computes."""
        if ACTIVE.trace is not None:
            ACTIVE.trace.modules[self] = None
        if COLLECTING.collector is not None:
            with COLLECTING.collector.inside(self):
                return self.forward(*args, **options)
        return self.forward(*args, **options)

    # Attributes.
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a Tensor, a Module or None
        for registry in REGISTRIES:
            held = self.__dict__.get(registry)
            if held is None:
                sentence = f"{type(self).__name__}: the module is not set up: {name!r} is used"
                raise AttributeError(f"{sentence}; super().__init__() must be called first.")
            if name in held:
                return held[name]
        sentence = f"{type(self).__name__}: no such attribute: {name!r}"
        raise AttributeError(f"{sentence}; it must be set before it is read.")

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - anything
        CHANGES.count += 1
        if isinstance(value, (Parameter, Module)):
            own = self._parameters if isinstance(value, Parameter) else self._modules
            for other in (self.__dict__, self._parameters, self._buffers, self._modules):
                if other is not own:
                    other.pop(name, None)
            own[name] = value  # type: ignore[assignment]  # own was chosen by the value's class
            return
        registry = self._registry_of(name)
        if registry is None:
            object.__setattr__(self, name, value)
        elif value is None or (registry is self._buffers and isinstance(value, Tensor)):
            registry[name] = value
        else:
            sentence = f"{type(self).__name__}: {name} cannot become this: {type(value).__name__}"
            raise TypeError(f"{sentence}; what is registered must stay of its kind, or be None.")

    def __delattr__(self, name: str) -> None:
        CHANGES.count += 1
        registry = self._registry_of(name)
        if registry is None:
            object.__delattr__(self, name)
        else:
            del registry[name]
            self._unsaved.discard(name)

    def __dir__(self) -> list[str]:
        names = (name for registry in REGISTRIES for name in self.__dict__[registry])
        return sorted({*super().__dir__(), *names})

    def _registry_of(self, name: str) -> dict[str, Any] | None:  # Any: what it registers
        registries = (self.__dict__.get(registry, {}) for registry in REGISTRIES)
        return next((registry for registry in registries if name in registry), None)

    def _register(self, kind: type, name: str, value: object, registry: dict[str, Any]) -> None:
        """Put a value or None into a registry, under a name that is free there."""
        who = f"register_{'buffer' if kind is Tensor else kind.__name__.lower()}"
        if value is not None and not isinstance(value, kind):
            sentence = f"{who}: no {kind.__name__}: {type(value).__name__}"
            raise TypeError(f"{sentence}; it must be one, or None.")
        if not name or "." in name:
            raise KeyError(f"{who}: no such name: {name!r}; it must be a word without dots.")
        if name not in registry and hasattr(self, name):
            raise KeyError(f"{who}: the name is taken: {name!r}; it must be no attribute yet.")
        CHANGES.count += 1
        registry[name] = value

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or the name of one that this module does without.

        Raises: TypeError, and KeyError for a name with a dot or in use.
        """
        self._register(Parameter, name, param, self._parameters)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is not trained; unless persistent, the state leaves it out.

        Raises: TypeError, and KeyError for a name with a dot or in use.
        """
        self._register(Tensor, name, tensor, self._buffers)
        if persistent:
            self._unsaved.discard(name)
        else:
            self._unsaved.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a module.

        Raises: TypeError, and KeyError for a name with a dot or in use.
        """
        self._register(Module, name, module, self._modules)

    add_module = register_module

    # The tree.
    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Walk this module and all inside it, each before its own; the first name of each."""
        seen = set() if memo is None else memo
        if remove_duplicate:
            if self in seen:
                return
            seen.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(seen, joined(prefix, name), remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Walk this module and all inside it."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Walk the modules right inside this one."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Walk the modules right inside this one."""
        return (module for _, module in self.named_children())

    def _named_tensors(
        self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:  # Any: what the registry holds
        walked = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        seen: set[int] = set()
        for path, module in walked if recurse else [(prefix, self)]:
            for name, tensor in module.__dict__[registry].items():
                if tensor is None or id(tensor) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(tensor))
                yield joined(path, name), tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Walk all parameters, each under its first name."""
        return self._named_tensors("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Walk all parameters."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Walk all buffers, each under its first name."""
        return self._named_tensors("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Walk all buffers."""
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """Return the module of a name such as `layers.0`; this one for an empty name.

        Raises: AttributeError.
        """
        found = self
        for name in target.split(".") if target else []:
            inner = found._modules.get(name)
            if inner is None:
                sentence = f"get_submodule: {type(found).__name__} has no such module: {name!r}"
                raise AttributeError(f"{sentence}; it must be one of named_modules().")
            found = inner
        return found

    # State.
    def state_dict(
        self,
        *,
        destination: dict[str, Tensor] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Tensor]:
        """Return all parameters and persistent buffers by name: their memory, without gradients."""
        state = {} if destination is None else destination
        for path, module in self.named_modules(remove_duplicate=False):
            held: dict[str, Tensor | None] = {**module._parameters, **module._buffers}
            for name, tensor in held.items():
                if tensor is not None and name not in module._unsaved:
                    state[prefix + joined(path, name)] = tensor if keep_vars else tensor.detach()
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Take over the values of a state, in this module's own dtypes and on its own devices.

        With `assign` the state's tensors themselves become the parameters and buffers. An error
        leaves the module as it was.
        Raises: RuntimeError when a shape differs or, if strict, when a name does.
        """
        own = self.state_dict(keep_vars=True)
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        shared = [name for name in own if name in state_dict]
        faults = [f"missing {name}" for name in missing] if strict else []
        faults += [f"unexpected {name}" for name in unexpected] if strict else []
        for name in shared:
            shape, given = own[name].shape, state_dict[name].shape
            faults += [f"{name} has shape {given} for {shape}"] if shape != given else []
        if faults:
            sentence = f"load_state_dict: not the state of this {type(self).__name__}"
            required = "names and shapes must be equal"
            raise RuntimeError(f"{sentence}: {', '.join(faults)}; {required}.")
        with no_grad():
            for name in shared:
                if assign:
                    self._assign(name, own[name], state_dict[name])
                else:
                    own[name].copy_(state_dict[name])
        return IncompatibleKeys(missing, unexpected)

    def _assign(self, name: str, known: Tensor, given: Tensor) -> None:
        path, _, last = name.rpartition(".")
        is_parameter = isinstance(known, Parameter)
        fresh = Parameter(given, known.requires_grad) if is_parameter else given
        setattr(self.get_submodule(path), last, fresh)

    # Modes and conversions.
    def train(self, mode: bool = True) -> Self:
        """Make this module and all inside it act as in training, or not."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Make this module and all inside it act as in use, not as in training."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make all parameters require a gradient, or not."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zeros."""
        clear_gradients(self.parameters(), set_to_none)

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Call a function with each module inside this one, then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, *target: Target, dtype: DType | None = None, device: str | None = None) -> Self:
        """Bring parameters and buffers to a device; those that are floats to a float dtype.

        Raises: DTypeError.
        """
        wanted, place = target_of(target, dtype, device)
        if wanted is not None and not wanted.is_float:
            sentence = f"to: parameters are floats: dtype is {wanted.name}"
            raise DTypeError(f"{sentence}; it must be a float dtype.")

        def converted(tensor: Tensor) -> Tensor:
            return tensor.to(dtype=wanted if tensor.dtype.is_float else None, device=place)

        with no_grad():
            for parameter in self.parameters():
                exchange(parameter, converted(parameter))
            for module in self.modules():
                for name, tensor in module._buffers.items():
                    module._buffers[name] = None if tensor is None else converted(tensor)
            CHANGES.count += 1
        return self

    def float(self) -> Self:
        """Bring all floats to float32."""
        return self.to(dtypes.float32)

    def half(self) -> Self:
        """Bring all floats to float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Bring all floats to bfloat16."""
        return self.to(dtypes.bfloat16)

    def double(self) -> Self:
        """Bring all floats to float64."""
        return self.to(dtypes.float64)

    # Text.
    def extra_repr(self) -> str:
        """Return what stands in the brackets of this module's text, before the modules inside."""
        return ""

    def _shown_children(self) -> list[tuple[str, str]]:
        """Return the name and the text of each module inside."""
        return [(name, repr(module)) for name, module in self._modules.items()]

    def __repr__(self) -> str:
        name, extra = type(self).__name__, self.extra_repr().splitlines()
        inner = [f"({name}): {text}" for name, text in self._shown_children()]
        if not inner and len(extra) < 2:
            return f"{name}({''.join(extra)})"
        lines = [line for text in (*extra, *inner) for line in text.splitlines()]
        return "\n".join([f"{name}(", *[f"  {line}" for line in lines], ")"])
