"""Turns gradients into other values of the parameters, all in one schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinytensor.nn.parameter import clear_gradients
from tinytensor.realize import allocate_zeros, from_host, storage_of, to_host
from tinytensor.runtime.buffer import Buffer
from tinytensor.tensor.companions import take_companions
from tinytensor.tensor.grad_mode import enable_grad, no_grad
from tinytensor.tensor.tensor import Tensor
from tinytensor.timing import timed
from tinytensor.tracing import ACTIVE, feed

Group = dict[str, Any]  # the options that some parameters share, and these as "params"
Options = dict[str, Any]
State = dict[str, Any]  # what an optimizer remembers of one parameter
Saved = dict[str, Any]
Parameters = Iterable[Tensor] | Iterable[Group]


def wide(x: Tensor) -> Tensor:
    """Return halves in float32, in which a step computes before it rounds once."""
    return x.float() if x.dtype.is_narrow else x


def zeros_in_memory(like: Tensor) -> Tensor:
    """Return zeros with memory of their own, so that the first step is one like all others."""
    leaf = allocate_zeros(like.dtype, like.shape, like.device)
    return Tensor._made(leaf, like.device)


def separate(tensors: Iterable[Tensor]) -> None:
    """Give memory of its own to each realized cell: equal constants were computed once for all."""
    taken: set[Buffer] = set()
    for each in {id(each.cell): each for each in tensors}.values():
        leaf = each.cell.leaf
        if leaf is None:
            continue
        if storage_of(leaf) in taken:
            leaf = from_host(to_host(leaf), leaf.dtype, each.device)
            each.cell.keep(leaf)
        taken.add(storage_of(leaf))


class Optimizer:
    """What all optimizers share: groups of parameters, their state, and the step.

    A subclass says in `update` what a parameter and its state become. All of it is computed by
    one schedule at the end of the step, together with the loss: so a graph never outlives a step.
    What it reads of the options and of the state is a constant of a traced program, and guarded;
    `fed` names what it reads through `numbers` and `repeat` alone, which may change.
    """

    fed: tuple[str, ...] = ()

    def __init__(self, params: Parameters, defaults: Options) -> None:
        if isinstance(params, Tensor):
            sentence = f"{type(self).__name__}: params is one Tensor: shape {params.shape}"
            raise TypeError(f"{sentence}; it must be several, as in [weight].")
        self.defaults = defaults
        self.state: dict[Tensor, State] = {}
        self.param_groups: list[Group] = []
        listed = list(params)
        if not listed:
            sentence = f"{type(self).__name__}: there is nothing to optimize: params is empty"
            raise ValueError(f"{sentence}; it must hold 1 or more.")
        groups = listed if isinstance(listed[0], dict) else [{"params": listed}]
        for group in groups:
            assert isinstance(group, dict), "all are groups, or none is"
            self.add_param_group(group)
        self._numbers: dict[object, list[Tensor]] = {}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return what a parameter becomes; write to its state."""
        raise NotImplementedError(f"update: {type(self).__name__} has none; it must define it.")

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters; options that the group leaves out are the optimizer's own.

        Raises: TypeError, ValueError.
        """
        given = param_group["params"]
        tensors = [given] if isinstance(given, Tensor) else list(given)
        who = type(self).__name__
        known = {id(each) for group in self.param_groups for each in group["params"]}
        for each in tensors:
            if not isinstance(each, Tensor):
                sentence = f"{who}: a parameter is no Tensor: {type(each).__name__}"
                raise TypeError(f"{sentence}; each must be one.")
            if not each.is_leaf:
                sentence = f"{who}: a parameter was computed: shape {each.shape}"
                raise ValueError(f"{sentence}; each must be a leaf.")
            if id(each) in known:
                sentence = f"{who}: a parameter is there twice: shape {each.shape}"
                raise ValueError(f"{sentence}; each must be in one group.")
            known.add(id(each))
        # PyTorch's order: the options, then the parameters.
        group = {**self.defaults, **param_group}
        group["params"] = tensors
        self.check_options(group)
        self.param_groups.append(group)
        Tensor.realize(*tensors)  # first values are drawn once, not in every step
        separate(tensors)

    def check_options(self, group: Group) -> None:
        """Raise ValueError for options that make no sense."""
        for name in ("lr", "eps", "weight_decay", "momentum"):
            if group.get(name, 0) < 0:
                sentence = f"{type(self).__name__}: {name} is negative: {group[name]}"
                raise ValueError(f"{sentence}; it must be 0 or more.")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or make them zeros."""
        for group in self.param_groups:
            clear_gradients(group["params"], set_to_none)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Change each parameter that has a gradient; compute all of it now.

        The losses that were differentiated since the last step are computed as well, because
        their values cost nothing here. Returns what the closure does.
        """
        if ACTIVE.trace is not None:
            name = f"an option or the state of {type(self).__name__}"
            ACTIVE.trace.watch(self, name, self._facts)
            ACTIVE.trace.kept += [each for group in self.param_groups for each in group["params"]]
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            changed = self._change_all()
            values = [each for state in self.state.values() for each in state.values()]
            kept = [each for each in values if isinstance(each, Tensor)]
            roots = [*changed, *kept, *take_companions()]
            if roots:
                roots[0].realize(*roots[1:])
        self._numbers.clear()
        return loss

    def _facts(self) -> list[tuple[str, object]]:
        """Return what a step depends on besides values of Tensors: options and kept numbers."""
        facts: list[tuple[str, object]] = [("state", id(self.state))]
        for group in self.param_groups:
            for options in (group, *[self.state.get(each, {}) for each in group["params"]]):
                kept = [name for name in options if name not in self.fed]
                facts += [(name, _fact_of(options[name])) for name in kept]
        return facts

    @timed("optimizer")
    def _change_all(self) -> list[Tensor]:
        changed = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = wide(parameter.grad)
                signed = -gradient if group["maximize"] else gradient
                state = self.state.setdefault(parameter, {})
                parameter.copy_(self.update(parameter, signed, state, group))
                changed.append(parameter)
        return changed

    def numbers(self, like: Tensor, compute: Callable[[], Sequence[float]]) -> Sequence[Tensor]:
        """Return numbers that change from step to step as Tensors, for arithmetic with another.

        They lie in memory: in the graph itself they would make each step a program of its own.
        Parameters whose numbers are equal now share them, and must have equal ones in each step.
        """
        dtype = wide(like).dtype
        values = compute()
        key = (tuple(values), dtype, like.device)
        if key not in self._numbers:
            held = Tensor._made(feed(compute, dtype, like.device), like.device)
            self._numbers[key] = [held[place] for place in range(len(values))]
        return self._numbers[key]

    def state_dict(self) -> Saved:
        """Return the state by the numbers of the parameters, and the groups with these numbers."""
        tensors = [each for group in self.param_groups for each in group["params"]]
        numbers = {id(each): number for number, each in enumerate(tensors)}
        groups = [
            {**group, "params": [numbers[id(each)] for each in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[id(each)]: saved_form(held) for each, held in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Saved) -> None:
        """Take over what state_dict() returned, in the dtypes and on the devices that are here.

        Raises: ValueError when the groups hold other numbers of parameters.
        """
        saved = state_dict["param_groups"]
        counts = [[len(each["params"]) for each in groups] for groups in (saved, self.param_groups)]
        if counts[0] != counts[1]:
            sentence = f"load_state_dict: groups differ: {counts[0]} and {counts[1]} parameters"
            raise ValueError(f"{sentence}; they must be equal.")
        loaded = {}
        for own, given in zip(self.param_groups, saved, strict=True):
            for parameter, number in zip(own["params"], given["params"], strict=True):
                if number in state_dict["state"]:
                    loaded[parameter] = loaded_form(state_dict["state"][number], parameter)
            own.update({**given, "params": own["params"]})
        self.state = loaded

    def __repr__(self) -> str:
        lines = []
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([f"{type(self).__name__} (", *lines, ")"])


def _fact_of(option: object) -> object:
    return id(option) if isinstance(option, (Tensor, list, dict)) else option


def saved_form(state: State) -> State:
    """Return a parameter's state as Tensors; the number of steps as float32."""
    return {
        name: each.detach() if isinstance(each, Tensor) else Tensor(float(each))
        for name, each in state.items()
    }


def loaded_form(state: State, parameter: Tensor) -> State:
    """Return a saved state as the parameter's own; the number of steps as a number."""
    return {
        name: int(each) if name == "step" else Tensor(each, parameter.dtype, parameter.device)
        for name, each in state.items()
        if each is not None
    }
