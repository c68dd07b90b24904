"""Turns the number of an epoch into learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tinytensor.optim.optimizer import Optimizer
from tinytensor.tracing import repeat

Rate = Callable[[int], float]


class LRScheduler:
    """What schedulers share: each step begins an epoch, and changes each group's `lr`.

    A subclass says in `get_lr` what the rates are in the epoch `last_epoch`.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            kind = type(optimizer).__name__
            raise TypeError(f"{type(self).__name__}: no Optimizer: {kind}; it must be one.")
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.optimizer = optimizer
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self) -> list[float]:
        """Return each group's rate in this epoch."""
        raise NotImplementedError(f"get_lr: {type(self).__name__} has none; it must define it.")

    def get_last_lr(self) -> list[float]:
        """Return each group's rate."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Begin the next epoch."""
        repeat(self._begin_epoch)

    def _begin_epoch(self) -> None:
        self.last_epoch += 1
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:  # Any: numbers, and lists of them
        """Return all numbers that this scheduler holds."""
        held = self.__dict__.items()
        return {name: value for name, value in held if name not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what state_dict() returned."""
        self.__dict__.update(state_dict)


class StepLR(LRScheduler):
    """Multiply the rates by gamma every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return each group's rate in this epoch."""
        is_due = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [rate * self.gamma if is_due else rate for rate in self.get_last_lr()]


class CosineAnnealingLR(LRScheduler):
    """Lower the rates to eta_min within T_max epochs along half a cosine, then raise them again."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return each group's rate in this epoch."""
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class LambdaLR(LRScheduler):
    """Let a function of the epoch say by what to multiply the first rates; one a group, or one."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Rate | Sequence[Rate], last_epoch: int = -1
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = (
            list(lr_lambda) if isinstance(lr_lambda, Sequence) else [lr_lambda] * count
        )
        if len(self.lr_lambdas) != count:
            sentence = f"LambdaLR: {len(self.lr_lambdas)} functions are given for {count} groups"
            raise ValueError(f"{sentence}; there must be one a group, or one.")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return each group's rate in this epoch."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * factor(self.last_epoch) for base, factor in pairs]
