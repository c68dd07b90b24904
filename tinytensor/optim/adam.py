"""Turns gradients into steps of about one length, by the means of gradients and their squares."""

from __future__ import annotations

import math

from tinytensor.optim.optimizer import Group, Optimizer, Parameters, State, wide, zeros_in_memory
from tinytensor.tensor.tensor import Tensor
from tinytensor.tracing import repeat


class Adam(Optimizer):
    """Divide the mean of the gradients by the root of the mean of their squares (Kingma, Ba, 2014).

    With `decoupled_weight_decay` the decay is no part of the gradient: that is AdamW.
    DTypes: float parameters; halves compute in float32 and round once.
    """

    fed = ("lr", "initial_lr", "step")

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def check_options(self, group: Group) -> None:
        """Raise ValueError for options that make no sense."""
        super().check_options(group)
        for number, beta in enumerate(group["betas"]):
            if not 0 <= beta < 1:
                sentence = f"{type(self).__name__}: betas[{number}] is no share: {beta}"
                raise ValueError(f"{sentence}; it must be 0 or more, and below 1.")

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter after a step."""
        first, second = group["betas"]

        def count_step() -> None:
            state["step"] = state.get("step", 0) + 1

        def rates() -> tuple[float, ...]:
            count = state["step"]
            rate = group["lr"] / (1 - first**count)
            kept = 1 - group["lr"] * group["weight_decay"]
            return rate, math.sqrt(1 - second**count), kept

        repeat(count_step)
        rate_now, correction, kept_now = self.numbers(parameter, rates)
        known = wide(parameter)
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            known = known * kept_now
        elif group["weight_decay"]:
            gradient = gradient + known * group["weight_decay"]
        mean = self._held(parameter, state, "exp_avg")
        mean = mean + (gradient - mean) * (1 - first)
        squares = self._held(parameter, state, "exp_avg_sq")
        squares = squares * second + gradient * gradient * (1 - second)
        state["exp_avg"].copy_(mean)
        state["exp_avg_sq"].copy_(squares)
        if group["amsgrad"]:
            squares = self._held(parameter, state, "max_exp_avg_sq").maximum(squares)
            state["max_exp_avg_sq"].copy_(squares)
        scaled: Tensor = mean / (squares.sqrt() / correction + group["eps"])
        return known - scaled * rate_now

    @staticmethod
    def _held(parameter: Tensor, state: State, name: str) -> Tensor:
        if name not in state:
            state[name] = zeros_in_memory(parameter)
        return wide(state[name])


class AdamW(Adam):
    """Adam, with the decay taken from the parameter itself (Loshchilov, Hutter, 2017)."""

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        given = (lr, betas, eps, weight_decay, amsgrad)
        super().__init__(params, *given, maximize=maximize, decoupled_weight_decay=True)
