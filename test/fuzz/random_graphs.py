"""Random programs over the public Tensor surface, reproducible from their seed.

Values are small integers wherever a sum, product or contraction may read them, so that every order
of summation gives the same bits; other ops may then turn them into anything.
"""

from dataclasses import dataclass

import numpy as np

from tinytensor import Tensor, dtypes

FLOATS = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64)
INTEGERS = (dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.int64)
LIMIT = 4  # integers are clamped to [-LIMIT, LIMIT] before they are summed


@dataclass(frozen=True)
class Value:
    """A tensor of a program, and whether it holds small integers alone."""

    tensor: Tensor
    integral: bool


class Program:
    """Grows a program step by step; `approximate` once a transcendental function was used."""

    def __init__(self, seed, device=None):
        self.rng = np.random.default_rng(seed)
        self.device = device
        self.approximate = False
        self.values = [self.leaf() for _ in range(self.rng.integers(2, 5))]
        for _ in range(self.rng.integers(3, 14)):
            self.step()
        count = min(len(self.values), int(self.rng.integers(1, 4)))
        self.outputs = [value.tensor for value in self.values[-count:]]
        if self.rng.random() < 0.5:
            self.outputs += self.siblings(self.pick(self.values).tensor)
        if self.rng.random() < 0.5:
            self.outputs += self.updates()

    def leaf(self):
        rank = self.rng.integers(0, 4)
        shape = tuple(int(each) for each in self.rng.choice([1, 2, 3, 4, 5, 7], rank))
        dtype = self.pick((*FLOATS, dtypes.float32, *INTEGERS))
        low = 0 if dtype.kind == "uint" else -LIMIT
        array = self.rng.integers(low, LIMIT + 1, shape).astype(np.float64)
        return Value(Tensor(array, device=self.device).cast(dtype), True)

    def siblings(self, x):
        """Several results over one space, of the same operands and of one another."""
        y = x.flip(0) if x.ndim else x * x
        made = [x + y, x.maximum(y) - self.pick((x, y)), x * y]
        made.append(self.pick(made) + self.pick((x, y)))
        return made[int(self.rng.integers(2)) :]

    def updates(self):
        """The steps of an optimizer: the same for parameters of several shapes, in their memory."""
        dtype = self.pick((*FLOATS, dtypes.float32))
        rate = Tensor([2.0, 3.0], device=self.device).realize()
        pull = self.pick((lambda p, m: p * rate[0] - m, lambda p, m: p.where(m > rate[1], m)))
        changed = []
        for number in range(self.rng.integers(2, 6)):
            shape = tuple(int(each) for each in self.rng.choice([1, 2, 5, 33], number % 3))
            arrays = self.rng.integers(-LIMIT, LIMIT + 1, (3, *shape)).astype(np.float64)
            held = [Tensor(each, device=self.device).cast(dtype).realize() for each in arrays]
            parameter, gradient, mean = held
            mean.copy_(mean * 0.5 + gradient)
            other = mean if self.rng.random() < 0.9 else self.pick(changed or [mean]).sum()
            parameter.copy_(pull(parameter, other))
            changed += [parameter, mean]
        return changed

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def step(self):
        kinds = (self.unary, self.binary, self.view, self.join, self.fold, self.row, self.product)
        kind = self.pick(kinds)
        made = kind(self.pick(self.values))
        if made is not None and made.tensor.numel() <= 4096:
            self.values.append(made)

    def unary(self, value):
        x = value.tensor
        whole = {
            "neg": lambda: -x,
            "relu": lambda: x.relu(),
            "clamp": lambda: x.clamp(-2, 3),
            "half": lambda: x.cast(self.pick(FLOATS)),
            "integer": lambda: x.cast(dtypes.int32),
            "compare": lambda: (x > 1).cast(dtypes.float32),
        }
        other = {
            "exp": lambda: (x.float() * 0.25).exp(),
            "sqrt": lambda: (x.float() * x.float() + 1.0).sqrt(),
            "reciprocal": lambda: 1.0 / (x.float() + 9.5),
            "tanh": lambda: x.float().tanh(),
        }
        name = self.pick((*whole, *whole, *other))
        if name in whole:
            if not value.integral and name in ("integer", "compare"):
                return None
            if x.dtype.kind == "uint" and name in ("neg", "clamp"):
                return None
            return Value(whole[name](), value.integral)
        self.approximate |= name in ("exp", "tanh")
        return Value(other[name](), False)

    def binary(self, value):
        other = self.pick(self.values)
        x, y = value.tensor, other.tensor
        if not broadcastable(x.shape, y.shape):
            y, other = x.flip(0) if x.ndim else x, value
        ops = {
            "add": lambda: x + y,
            "sub": lambda: x - y,
            "mul": lambda: x * y,
            "max": lambda: x.maximum(y),
            "min": lambda: x.minimum(y),
            "where": lambda: x.where(x > 0, y),
        }
        name = self.pick(tuple(ops))
        integral = value.integral and other.integral
        if not integral and name == "where":
            return None
        made = ops[name]()
        return Value(self.small(made) if integral else made, integral)

    def small(self, x):
        return x if x.dtype.kind == "uint" else x.clamp(-LIMIT, LIMIT)

    def view(self, value):
        x = value.tensor
        if x.ndim == 0:
            return Value(x.reshape(1), value.integral)
        axis = int(self.rng.integers(x.ndim))
        views = {
            "permute": lambda: x.permute(*self.rng.permutation(x.ndim).tolist()),
            "flatten": lambda: x.flatten(),
            "split": lambda: self.split(x),
            "flip": lambda: x.flip(axis),
            "slice": lambda: x[(slice(None),) * axis + (slice(0, None, 2),)],
            "tail": lambda: x[(slice(None),) * axis + (slice(-1, None),)],
            "pad": lambda: x.pad((1, 2), value=float(self.rng.integers(0, 3))),
            "expand": lambda: x.unsqueeze(axis).expand(*x.shape[:axis], 3, *x.shape[axis:]),
        }
        return Value(views[self.pick(tuple(views))](), value.integral)

    def split(self, x):
        last = x.shape[-1]
        return x.reshape(*x.shape[:-1], 2, last // 2) if last % 2 == 0 else x.unsqueeze(-1)

    def join(self, value):
        x = value.tensor
        if x.ndim == 0:
            return None
        if self.rng.random() < 0.5:
            return Value(Tensor.stack([x, x.flip(0)], dim=0), value.integral)
        return Value(Tensor.cat([x.flip(0), x], dim=int(self.rng.integers(x.ndim))), value.integral)

    def fold(self, value):
        x = value.tensor
        if x.ndim == 0:
            return None
        axis = int(self.rng.integers(x.ndim))
        keep = bool(self.rng.random() < 0.5)
        folds = {
            "amax": lambda: x.amax(axis, keepdim=keep),
            "amin": lambda: x.amin(axis, keepdim=keep),
            "sum": lambda: x.sum(axis, keepdim=keep),
            "argmax": lambda: x.argmax(axis, keepdim=keep),
            "total": lambda: x.sum(),
        }
        name = self.pick(tuple(folds))
        if not value.integral and name not in ("amax", "amin"):
            return None
        return Value(self.small(folds[name]()), value.integral)

    def row(self, value):
        """What softmax and the norms do: folds of rows, read again by each of their elements."""
        x = value.tensor
        if not value.integral or x.ndim == 0 or x.dtype.kind == "uint":
            return None
        axes = sorted({int(each) for each in self.rng.integers(x.ndim, size=2)})

        def total(y):
            return self.small(y.sum(axes, keepdim=True))

        shifted = self.small(x - x.amax(axes, keepdim=True))
        centered = self.small(x - total(x))
        residual = self.small(x + self.pick(self.values).tensor.sum())
        made = {
            "softmax": lambda: shifted.float() / (total(shifted * shifted) + 1).float(),
            "cross entropy": lambda: total(shifted) - x.where(x > 0, shifted).amax(axes, True),
            "norm": lambda: centered * total(centered * centered) + x,
            "residual": lambda: residual * total(residual).relu() - total(x),
            "statistics": lambda: total(centered * x),
            "gradient": lambda: shifted * (x - total(shifted * x)) + total(centered),
        }
        name = self.pick(tuple(made))
        if name != "softmax":
            return Value(self.small(made[name]()), True)
        self.values.append(Value(shifted, True))
        return Value(made[name](), False)

    def product(self, value):
        x = value.tensor
        if not value.integral or x.ndim < 2 or not x.dtype.is_float:
            return None
        other = self.pick(self.values)
        y = other.tensor
        fits = y.ndim == 2 and y.dtype is x.dtype and y.shape[0] == x.shape[-1]
        if not (fits and other.integral):
            y = x.transpose(-1, -2)
        return Value(self.small(x @ y), True)


def broadcastable(a, b):
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(x == y or 1 in (x, y) for x, y in pairs)
