"""Turns the gradient of a convolution into convolutions: of its input, of its weight, of its bias.

The sum over windows has a gradient of its own, but that of the input would be stored for every
place of a window and only then folded, in another rounding for each axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from tinytensor.nn.rounding import widened
from tinytensor.records import dataclass
from tinytensor.tensor.tensor import Tensor

MOST_COMBS = 16  # each is a kernel


@dataclass(frozen=True, slots=True)
class Stepping:
    """How the windows of one axis lie: what they step by, the gap in them, and the border before.

    `extent` is the input's, `kernel` a window's, both without the border.
    """

    extent: int
    kernel: int
    step: int
    apart: int
    before: int

    @property
    def combs(self) -> list[Comb]:
        """The combs of the axis, in the order of their first places in the input."""
        return [self._comb(place) for place in range(self.step)]

    def _comb(self, place: int) -> Comb:
        """Return the comb of places of the input a step apart, from one of the first on."""
        first, number = divmod(self.before + place, self.step)
        reaching = [
            tap for tap in range(self.kernel) if (tap * self.apart - number) % self.step == 0
        ]
        divisor = math.gcd(self.apart, self.step)
        tap = reaching[0] if reaching else 0
        begin = (tap * self.apart - number) // self.step - first
        return Comb(len(reaching), tap, self.step // divisor, begin, self.apart // divisor)

    @property
    def places(self) -> int:
        """How many places each comb has; the last one of some may lie beyond the input."""
        return -(-self.extent // self.step)

    def border(self, comb: Comb, results: int) -> tuple[int, int]:
        """Return what the gradient of that many results is padded by, so that taps find it."""
        reach = comb.apart * (comb.taps - 1)
        left = reach + comb.begin
        return left, self.places + reach - left - results


@dataclass(frozen=True, slots=True)
class Comb:
    """Places a step apart, which taps `first`, `first` + `step` and so on reach.

    Tap number t brings place p what result p - begin - t * apart has.
    """

    taps: int
    first: int
    step: int
    begin: int
    apart: int


Convolve = Callable[[Tensor, Tensor, Sequence[int], int], Tensor]  # x, weight, dilation, groups


def input_gradient(
    g: Tensor, weight: Tensor, axes: Sequence[Stepping], groups: int, convolve: Convolve
) -> Tensor:
    """Return the gradient of the input: for each comb, g convolved with the taps that reach it.

    Shapes: g (n, groups * m, *results), weight (groups * m, c, *kernel) -> (n, groups * c, *..).
    """
    combs = itertools.product(*[each.combs for each in axes])
    parts = [_comb_gradient(g, weight, axes, each, groups, convolve) for each in combs]
    if len(parts) == 1:
        return parts[0]
    count = len(axes)
    steps = [each.step for each in axes]
    places = [each.places for each in axes]
    woven = Tensor.stack(parts).reshape(*steps, *parts[0].shape)
    order = [place for axis in range(count) for place in (count + 2 + axis, axis)]
    whole = woven.permute(count, count + 1, *order).reshape(
        *parts[0].shape[:2], *[n * step for n, step in zip(places, steps, strict=True)]
    )
    return whole[(..., *[slice(each.extent) for each in axes])]


def _comb_gradient(
    g: Tensor,
    weight: Tensor,
    axes: Sequence[Stepping],
    combs: Sequence[Comb],
    groups: int,
    convolve: Convolve,
) -> Tensor:
    channels, results_each = weight.shape[1], weight.shape[0] // groups
    if not all(each.taps for each in combs):
        shape = (g.shape[0], groups * channels, *[each.places for each in axes])
        return Tensor.zeros(shape, dtype=g.dtype, device=g.device)
    taps = [slice(each.first, None, each.step) for each in combs]
    chosen = weight[(..., *taps)].flip(tuple(range(2, weight.ndim)))
    grouped = chosen.reshape(groups, results_each, *chosen.shape[1:]).transpose(1, 2)
    turned = grouped.reshape(groups * channels, results_each, *chosen.shape[2:])
    results = g.shape[2:]
    sides = [axis.border(comb, n) for axis, comb, n in zip(axes, combs, results, strict=True)]
    padded = g.pad([side for both in sides[::-1] for side in both])
    return convolve(padded, turned, [each.apart for each in combs], groups)


def weight_gradient(g: Tensor, windows: Tensor, weight: Tensor, groups: int) -> Tensor:
    """Return the gradient of the weight: over all places, results times what their windows hold.

    Shapes: g (n, groups * m, *results), windows (n, groups, 1, *results, c, *kernel).
    """
    count = weight.ndim - 2
    n, _, *results = g.shape
    wide = g.reshape(n, groups, weight.shape[0] // groups, *results, *(1,) * (count + 1))
    places = (0, *range(3, 3 + count))
    total = (widened(wide) * widened(windows)).sum(places)
    return total.reshape(weight.shape).to(weight.dtype)


def bias_gradient(g: Tensor) -> Tensor:
    """Return the gradient of the bias: the sum over all places."""
    places = (0, *range(2, g.ndim))
    return widened(g).sum(places).to(g.dtype)
