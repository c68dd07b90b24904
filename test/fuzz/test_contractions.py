"""Random products, with work around them, agree with float64 on outputs that were full of NaN."""

import math

import numpy as np
import pytest
from schedule.reading import leaf_values
from tolerance import assert_close

from tinytensor import Tensor, dtypes
from tinytensor.codegen.plans import cuda_contraction
from tinytensor.dtype import round_to_bfloat16
from tinytensor.runtime.device import Device, DeviceBase

IN_THE_SUITE = 50
ALL = 550
MOST_PRODUCTS = {"CPU": 2**15, "CUDA": 2**21}  # the reference holds each one
LONGEST = {"CPU": 70, "CUDA": 700}
FLOAT8 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
DTYPES = (
    *[dtypes.float16, dtypes.bfloat16, dtypes.float32] * 3,
    *(dtypes.float64, dtypes.int32, dtypes.int8, dtypes.int8, dtypes.uint8),
    *FLOAT8,
)


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Memory comes full of NaN, so that an element that is not written shows."""
    allocate = DeviceBase.allocate

    def allocate_poisoned(device, nbytes):
        made = allocate(device, nbytes)
        device.poison(made)
        return made

    monkeypatch.setattr(DeviceBase, "allocate", allocate_poisoned)


class RandomProduct:
    """Draws a product: extents, layouts, batches, and what is done before and after."""

    def __init__(self, seed, device):
        self.rng = np.random.default_rng(seed)
        self.device = device
        self.dtype = self.choose(DTYPES)
        # A GPU sums floats of 8 bits in some 14 bits, which hold the sums of small whole numbers.
        self.is_whole = self.dtype in FLOAT8 or not self.dtype.is_float
        self.is_whole = self.is_whole or bool(self.rng.integers(2))
        self.batch = tuple(self.rng.integers(1, 4, self.rng.choice(3, p=[0.6, 0.3, 0.1])))
        self.m, self.n, self.k = self.extents()

    def choose(self, options):
        return options[self.rng.integers(len(options))]

    def extents(self):
        """Three extents: often a multiple of what tiles and copies take, or one beside it."""
        longest, most = LONGEST[self.device], MOST_PRODUCTS[self.device]
        drawn = [int(longest ** self.rng.uniform(0, 1)) for _ in range(3)]
        if self.rng.integers(2):
            drawn = [-(-each // 8) * 8 for each in drawn]
        while math.prod(drawn) * math.prod(self.batch) > most:
            drawn[drawn.index(max(drawn))] //= 2
        return drawn

    def tensor(self, *shape):
        """A tensor of that shape: dense, turned, part of a larger one, or with a batch of 1."""
        shape = tuple(1 if at < len(shape) - 2 and self.rng.random() < 0.2 else int(each)
                      for at, each in enumerate(shape))  # fmt: skip
        kind = self.choose(("dense", "turned", "part")) if len(shape) > 1 else "dense"
        if kind == "turned":
            return self.dense((*shape[:-2], shape[-1], shape[-2])).transpose(-1, -2)
        if kind == "part":
            begin = int(self.rng.integers(1, 9))
            return self.dense((*shape[:-1], shape[-1] + begin))[..., begin:]
        return self.dense(shape)

    def dense(self, shape):
        if self.is_whole:
            values = self.rng.integers(-3 if self.dtype.min < 0 else 0, 4, shape)
        else:
            values = self.rng.standard_normal(shape)
        values = values.astype(self.dtype.value_numpy)
        if self.dtype is dtypes.bfloat16:
            values = round_to_bfloat16(values)
        return Tensor(values, dtype=self.dtype, device=self.device)

    def before(self, x):
        kind = self.choose(("", "", "", "scale", "clip", "select", "add"))
        if kind == "scale":
            return x * 2
        if kind == "clip":
            return x.clamp(min=0)
        if kind == "select":
            return x.where(x < 1, 0)
        return x + self.tensor(x.shape[-1]) if kind == "add" else x

    def beside(self, *shape):
        """A tensor that a result may be combined with."""
        made = self.tensor(*shape)
        return made.float() if self.dtype in FLOAT8 else made

    def after(self, x):
        for _ in range(self.rng.integers(0, 3)):
            kind = self.choose(("bias", "column", "residual", "clip", "scale", "curve"))
            if kind == "bias":
                x = x + self.beside(self.n)
            elif kind == "column":
                x = x * self.beside(self.m, 1)
            elif kind == "residual":
                x = x + self.beside(*self.batch, self.m, self.n)
            elif kind == "curve" and self.dtype.is_float:
                x = x.tanh()
            else:
                x = x.clamp(min=0) if kind == "clip" else x * 3
        return x

    def made(self):
        a = self.before(self.tensor(*self.batch, self.m, self.k))
        b = self.before(self.tensor(*self.batch, self.k, self.n))
        if self.dtype.bits == 8 and self.rng.integers(4):  # else the sum wraps
            a, b = a.int(), b.int()
        if self.dtype in FLOAT8:
            a = a.half().float() if self.rng.integers(2) else a.float()
            b = b.float()
        return self.after(a @ b)


def check(seed, device, monkeypatch):
    if seed % 2:  # large products rewrite factors that cannot be copied as they lie
        monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)
    result = RandomProduct(seed, device).made()
    root, arrays = result.uop, leaf_values(result)

    assert_close(result.numpy(), root, arrays, incomparable=0.05)


@pytest.mark.parametrize("seed", range(IN_THE_SUITE))
def test_random_products_agree(seed, default_device, monkeypatch):
    check(seed, Device[default_device].name, monkeypatch)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(IN_THE_SUITE, ALL, 50))
def test_many_random_products_agree(first, default_device, monkeypatch):
    device = Device[default_device].name if default_device else Device.default().name
    for seed in range(first, first + 50):
        with monkeypatch.context() as patch:
            check(seed, device, patch)
