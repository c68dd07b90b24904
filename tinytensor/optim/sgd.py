"""Turns gradients into steps downhill, with momentum."""

from __future__ import annotations

from tinytensor.optim.optimizer import Group, Optimizer, Parameters, State, wide, zeros_in_memory
from tinytensor.tensor.tensor import Tensor


class SGD(Optimizer):
    """Subtract lr times the gradient, or times a mean of it and those before it.

    DTypes: float parameters; halves compute in float32 and round once.

    >>> from tinytensor import Tensor, optim
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = optim.SGD([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> _ = optimizer.step()
    >>> x.tolist()
    [0.5, 1.0]
    """

    fed = ("lr", "initial_lr")

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check_options(self, group: Group) -> None:
        """Raise ValueError for options that make no sense, alone or together."""
        super().check_options(group)
        momentum, dampening = group["momentum"], group["dampening"]
        if group["nesterov"] and (momentum == 0 or dampening != 0):
            sentence = f"SGD: nesterov does not go with {momentum=} and {dampening=}"
            raise ValueError(f"{sentence}; momentum must be above 0 and dampening 0.")

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter after a step."""
        (lr,) = self.numbers(parameter, lambda: (group["lr"],))
        known = wide(parameter)
        if group["weight_decay"]:
            gradient = gradient + known * group["weight_decay"]
        momentum = group["momentum"]
        if momentum:
            moved = gradient
            if "momentum_buffer" in state:
                share = 1 - group["dampening"]
                moved = wide(state["momentum_buffer"]) * momentum + gradient * share
            else:
                state["momentum_buffer"] = zeros_in_memory(parameter)
            state["momentum_buffer"].copy_(moved)
            gradient = gradient + moved * momentum if group["nesterov"] else moved
        return known - gradient * lr
