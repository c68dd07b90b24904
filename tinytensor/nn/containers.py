"""Turns several modules into one: in a row, in a list, or by name."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import groupby
from typing import Any, Self

from tinytensor.errors import IndexOutOfRange
from tinytensor.nn.module import Module

Named = Mapping[str, Module] | Iterable[tuple[str, Module]]


class Series(Module):
    """Modules in an order, named by their places."""

    _modules: dict[str, Module]  # type: ignore[assignment]  # none is missing

    def _name_at(self, index: int) -> str:
        count = len(self)
        if not -count <= index < count:
            sentence = f"{type(self).__name__}: no such module: {index} of {count}"
            raise IndexOutOfRange(f"{sentence}; the index must be in {-count} .. {count - 1}.")
        return list(self._modules)[index]

    def _number(self, modules: Iterable[Module]) -> Self:
        """Hold these modules, named by their places."""
        listed = list(modules)
        self._modules.clear()
        for place, module in enumerate(listed):
            self.add_module(str(place), module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: int | slice) -> Any:  # noqa: ANN401 - one Module, or a Series
        if isinstance(index, slice):
            chosen = type(self)()
            for name in list(self._modules)[index]:
                chosen.add_module(name, self._modules[name])
            return chosen
        return self._modules[self._name_at(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [self._name_at(index)]:
            del self._modules[name]
        self._number(self)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Add a module before the one at a place."""
        modules = list(self)
        modules.insert(index, module)
        return self._number(modules)


class Sequential(Series):
    """Give each module the result of the one before it.

    >>> from tinytensor import Tensor, nn
    >>> layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> layers(Tensor.zeros(5, 4)).shape, list(layers.state_dict())[2:]
    ((5, 2), ['2.weight', '2.bias'])
    """

    def __init__(self, *args: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            named = dict(args[0])
        else:
            named = {str(place): module for place, module in enumerate(args)}  # type: ignore[misc]  # add_module checks
        for name, module in named.items():
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:  # noqa: ANN401 - as the modules
        """Return the last module's result."""
        for module in self:
            input = module(input)
        return input


class ModuleList(Series):
    """A list of modules, which a module knows as its own."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __getitem__(self, index: int | slice) -> Any:  # noqa: ANN401 - one Module, or a list
        chosen = super().__getitem__(index)
        return chosen._number(chosen) if isinstance(index, slice) else chosen

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def _shown_children(self) -> list[tuple[str, str]]:
        shown = []
        for text, run in groupby(super()._shown_children(), key=lambda child: child[1]):
            names = [name for name, _ in run]
            several = f"{names[0]}-{names[-1]}", f"{len(names)} x {text}"
            shown.append(several if len(names) > 1 else (names[0], text))
        return shown


class ModuleDict(Module):
    """Modules by name, which a module knows as its own."""

    _modules: dict[str, Module]  # type: ignore[assignment]  # none is missing

    def __init__(self, modules: Named | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Named) -> None:
        """Add modules, or replace those of the same names."""
        for name, module in dict(modules).items():
            self[name] = module

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._modules.keys()

    def values(self) -> ValuesView[Module]:
        """Return the modules."""
        return self._modules.values()

    def items(self) -> ItemsView[str, Module]:
        """Return names and modules."""
        return self._modules.items()

    def pop(self, key: str) -> Module:
        """Take a module out."""
        return self._modules.pop(key)

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()
