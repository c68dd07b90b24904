"""Prices what a kernel does by a target's rates, and a value stored against one computed again."""

from __future__ import annotations

import math

from tinytensor.dtype import DType
from tinytensor.ops.op import ELEMENTWISE, Mark, Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass
from tinytensor.schedule.describe import short_dtype, short_size, short_time
from tinytensor.target import Target

# In additions. A division: vector division on Zen 5. PHILOX: ten rounds of two products.
ADDITIONS = {Op.DIV: 8, Op.SQRT: 8, Op.FLOORDIV: 8, Op.MOD: 8, Op.PHILOX: 100}
# In the unit of Rates.functions: 16 MB of float32 through each, Zen 5, 0.27 to 0.55 ns an element.
FUNCTIONS = {Op.LOG: 1.5, Op.SIN: 1.5, Op.COS: 1.5, Op.TANH: 1.7, Op.ERF: 2.0}
# A packed panel of a CPU's product is at most this deep.
PANEL_ROW_BYTES = 4096
# Memory is scarce apart from its rate: a byte less to hold is worth the time of moving so many.
MOVED_PER_HELD = 8
ROUNDING = 1e-9  # of a time: what sums of floats leave where two are the same


@dataclass(frozen=True, slots=True)
class Load:
    """The time that a kernel's arithmetic takes, and that of its memory; they overlap."""

    arithmetic: float = 0.0
    memory: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(self.arithmetic + other.arithmetic, self.memory + other.memory)

    @property
    def seconds(self) -> float:
        """The time of both, without the launch."""
        return max(self.arithmetic, self.memory)


def price_name(node: UOp) -> str:
    """Name what is as fast as a node; with its dtype, where that makes a difference."""
    if node.op is Op.CONTRACT:
        return f"flop of {short_dtype(node.operands[0].dtype)} products"
    is_priced = node.op.mark is Mark.TRANSCENDENTAL or node.op in ADDITIONS
    name = node.op.name.lower() if is_priced else "simple ops"
    return f"{name} of 8 bytes" if node.dtype.itemsize == 8 else name


def evaluation_seconds(node: UOp, target: Target) -> float:
    """Return what one element of a node takes beyond its operands; of a fold, one folded in."""
    rates = target.rates
    if node.op is Op.CONTRACT:
        return product_seconds(node.operands[0].dtype, target)
    if node.op not in ELEMENTWISE and node.op not in (Op.REDUCE, Op.GATHER):
        return 0.0
    vectors = 2 if node.dtype.itemsize == 8 else 1  # as many as a float32 takes
    if node.op.mark is Mark.TRANSCENDENTAL:
        units = rates.exponential if node.op is Op.EXP else FUNCTIONS.get(node.op, 1)
        return vectors * units / rates.functions
    return vectors * ADDITIONS.get(node.op, 1) * 2 / rates.flops


def product_seconds(dtype: DType, target: Target, is_computed: bool = False) -> float:
    """Return what one product of two factors takes, added to a sum."""
    rates = target.rates
    if not (rates.half_flops and (dtype.is_half or dtype.bits == 8)):
        return 2 / rates.flops
    flops = rates.computed_half_flops if is_computed else rates.half_flops
    return dtype.itemsize / flops


def reading_seconds(nbytes: int, target: Target) -> float:
    """Return the time to read a value, which has some of a cache beside others."""
    return nbytes / (target.rates.cache if nbytes <= cached_bytes(target) else target.rates.read)


def writing_seconds(nbytes: int, target: Target) -> float:
    """Return the time to write a value."""
    return nbytes / (target.rates.cache if nbytes <= cached_bytes(target) else target.rates.write)


def cached_bytes(target: Target) -> int:
    """Return the most bytes of a value that stays in cache beside others."""
    return target.cache_bytes // 4


def holding_seconds(nbytes: int, target: Target) -> float:
    """Return how much longer kernels may take for not holding some bytes between them."""
    return MOVED_PER_HELD * nbytes / target.rates.copy


def strip_seconds(evaluations: int, dtype: DType, target: Target) -> float:
    """Return what a CPU takes to lay out a computed factor in cache and read it back."""
    is_laid_out = target.kind != "cuda"
    return is_laid_out * evaluations * 2 * dtype.itemsize / target.rates.cache


def evaluations_of_factors(m: int, n: int, k: int, target: Target) -> tuple[int, int]:
    """Return how often a product computes each element of its factors a (m, k) and b (k, n).

    A GPU's tiles each compute their own rows and columns. A CPU packs each panel of b once, for
    which a is gone through once more; a panel fills three quarters of L2.
    """
    if target.kind == "cuda":
        return math.ceil(n / target.tile), math.ceil(m / target.tile)
    row_bytes = min(max(k, 1) * 4, PANEL_ROW_BYTES)
    columns = max(1, target.l2_bytes * 3 // 4 // row_bytes)
    return math.ceil(n / columns), 1


@dataclass(frozen=True, slots=True)
class Choice:
    """To store a value of `nbytes` that `kernels` read, or to compute it in each of them.

    `making` is the kernel that would store it, with its launch; `reading` and `recomputing` what
    all its readers would take longer; `holding` the price of its bytes. Units: seconds.
    """

    making: float
    launch: float
    reading: float
    recomputing: float
    kernels: int
    nbytes: int
    holding: float = 0.0

    @property
    def storing(self) -> float:
        """All that storing takes."""
        return self.making + self.reading + self.holding

    @property
    def is_stored(self) -> bool:
        """Whether storing is cheaper."""
        return self.storing < self.recomputing

    def __str__(self) -> str:
        """Say what both take, of which parts, and what would change the choice."""
        launch = f", {short_time(self.launch)} of it the launch" if self.launch else ""
        parts = [f"making it {short_time(self.making)}{launch}"]
        if self.launch:
            hidden = ", hidden behind computing" * (not self.reading)
            parts.append(f"reading it adds {short_time(self.reading)}{hidden}")
            parts.append(f"holding it for later readers {short_time(self.holding)}")
        stored = f"{short_time(self.storing)} ({'; '.join(parts)})"
        again = short_time(self.recomputing)
        times = (
            f"storing takes {stored}, recomputing {again}"
            if self.is_stored
            else f"recomputing takes {again}, storing {stored}"
        )
        return f"{times}; {self._flip()}."

    def _flip(self) -> str:
        """Say at which size or number of readers the other way is as fast.

        With its size grows all that a value takes but the launch; with its readers, all but making.
        """
        if not self.launch:
            return "no launch and no memory, for the kernels that read it fold its rows in one"
        gain = self.recomputing - self.reading
        gain_with_size = gain - (self.storing - self.reading - self.launch)
        if gain_with_size > 0:
            size = short_size(self.nbytes * self.launch / gain_with_size)
            turn = f"recomputed below {size}" if self.is_stored else f"stored above {size}"
            here = short_size(self.nbytes)
            return f"{turn} of it (here {here}), since its launch takes as long at any size"
        if gain > ROUNDING * self.recomputing:
            readers = self.kernels * (self.making + self.holding) / gain
            saved = short_time(gain / self.kernels)
            return f"each reader saves {saved}, so stored from {math.floor(readers) + 1} readers on"
        return "reading it would take as long as computing it, at any size"
