"""Follows the storages that PyTorch's operations return, from birth to death."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class StorageTracker(TorchDispatchMode):
    """Counts the bytes of the storages that are alive; saved tensors hold theirs as others do.

    Units: bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._seen: dict[int, weakref.ref[Any]] = {}

    def see(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage, if it is not counted yet, until it dies."""
        storage = tensor.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        if key in self._seen:
            return

        def forget(_: weakref.ref[Any]) -> None:
            self.now -= nbytes
            del self._seen[key]

        self._seen[key] = weakref.ref(storage, forget)
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the operation returns
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, torch.Tensor):
                self.see(each)
        return found
