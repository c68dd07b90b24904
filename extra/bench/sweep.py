"""Times every candidate of a product's plan: `python -m extra.bench.sweep`.

It tells how far the estimate's choice is from the best. Before a product is timed, what the choice
gives is compared with float64.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tinytensor
from extra.bench.table import place
from tinytensor import Tensor, config, dtypes
from tinytensor.codegen.plan import Candidate, take
from tinytensor.dtype import DType, round_to_bfloat16
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.uop import UOp, buffer
from tinytensor.realize import canonical_device
from tinytensor.runtime.device import AnyDevice, Device
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import Target
from tinytensor.tune import Measured, measure

MOST = 64
SECONDS = 6.0
SAMPLED_ROWS = 64
SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}

Array = npt.NDArray[Any]
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices, each as it lies or turned (T), that a bias may be added to."""

    m: int
    n: int
    k: int
    dtype: DType
    layout: str = "NT"
    has_bias: bool = False
    how: str = "exact"  # products of float32

    @property
    def name(self) -> str:
        """Say it in a word."""
        kind = SHORT[self.dtype.name] if self.how == "exact" else self.how
        return f"{kind}-{self.m}x{self.n}x{self.k}-{self.layout}{'-bias' * self.has_bias}"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the operands, as they lie."""
        a, b = (self.m, self.k), (self.k, self.n)
        turned = [
            each[::-1] if letter == "T" else each
            for each, letter in zip((a, b), self.layout, strict=True)
        ]
        return [*turned, (self.n,)][: 3 if self.has_bias else 2]

    def made(self, operands: Sequence[Tensor]) -> Tensor:
        """Multiply, round, add."""
        a, b = [
            each.T if letter == "T" else each
            for each, letter in zip(operands[:2], self.layout, strict=True)
        ]
        product = a @ b
        return product + operands[2] if self.has_bias else product


F16, BF16, F32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
PRODUCTS = (
    *[Product(8192, 8192, 8192, BF16, layout) for layout in ("NT", "NN")],
    Product(8192, 28672, 4096, BF16),
    *[Product(4096, 4096, 4096, F16, layout) for layout in ("NT", "NN")],
    *[Product(4096, 4096, 4096, BF16, layout) for layout in ("NT", "NN", "TN", "TT")],
    *[Product(4096, 11008, 8192, BF16, layout) for layout in ("TN", "TT")],
    *[Product(4096, 4096, k, BF16) for k in (1024, 512)],
    *[Product(2048, 2048, 2048, F16, layout) for layout in ("NT", "NN")],
    *[Product(1024, 1024, 768, F16, layout, True) for layout in ("NT", "NN")],
    *[Product(m, 4096, 4096, BF16) for m in (512, 128)],
    *[Product(16, 4096, 4096, BF16, layout) for layout in ("NT", "NN")],
    Product(1000, 1000, 1000, F16),
    *[Product(1000, 1000, 1000, F16, layout, True) for layout in ("NT", "NN")],
    *[Product(1536, 1536, 1536, BF16, layout) for layout in ("NT", "NN")],
    *[Product(1001, 999, 1003, F16, layout, True) for layout in ("NT", "NN")],
    *[Product(4097, 4095, 4099, BF16, layout) for layout in ("NT", "NN")],
    *[Product(m, 768, 8192, BF16, "TN") for m in (768, 3072)],
    Product(1280, 5120, 8192, BF16, "TN"),
    Product(2560, 2560, 2560, BF16),
    *[Product(4096, 4096, 4096, F32, how=how) for how in ("tf32", "3xtf32")],
    Product(2048, 2048, 2048, F32, how="3xtf32"),
    Product(2048, 2048, 2048, F32),
    Product(1024, 1024, 1024, F32, "NN"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep the products asked for; give 1 when a result was wrong."""
    options = parse(arguments)
    device = Device[canonical_device(options.device)]
    products = [each for each in options.products or PRODUCTS if options.work in each.name]
    products.sort(key=lambda each: each.m * each.n * each.k)  # large ones may be cut off
    where = place() | {"device": device.model, "version": tinytensor.__version__}
    where |= {} if options.commit is None else {"commit": options.commit}
    print(f"{where['device']}, {where['commit']}, {where['date']}")
    wrong = 0
    begin = time.monotonic()
    for product in products:
        with config(fp32_matmul=product.how, tune="0"):
            records = sweep(product, device, options.most, options.seconds)
        print(line_of(records), flush=True)
        wrong += any("problem" in each or each.get("wrong") for each in records)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.writelines([json.dumps(each | where) + "\n" for each in records])
    print(f"{time.monotonic() - begin:.0f} s in all; {wrong} products with something wrong")
    return int(wrong > 0)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m extra.bench.sweep", description=__doc__)
    parser.add_argument("products", nargs="*", type=product_of, metavar="MxNxK")
    parser.add_argument("--device", default="CUDA")
    parser.add_argument("--work", default="", help="a part of the names to sweep")
    parser.add_argument("--most", type=int, default=MOST, help="candidates of a product")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of measuring a product")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append lines")
    parser.add_argument("--commit", help="where git cannot tell it")
    return parser.parse_args(arguments)


def product_of(text: str) -> Product:
    """Read extents such as 96x64x32: of float32, as they lie."""
    m, n, k = [int(each) for each in text.split("x")]
    return Product(m, n, k, F32, "NN")


def sweep(product: Product, device: AnyDevice, most: int, seconds: float) -> list[Record]:
    """Measure a product; give the choice of the estimate and the best as records of two engines."""
    usual: Record = {"row": "sweep", "work": product.name, "engine": "tinytensor"}
    best: Record = usual | {"engine": "best candidate"}
    if not is_right(product, device):
        return [usual | {"problem": "wrong"}, best | {"problem": "wrong"}]
    target = target_of(device)
    kernel = kernel_of(product, device, target)
    taken = take(kernel, target)
    listed = taken.plan.candidates(taken.facts, target)
    found = measure(kernel, device, target, most, seconds)
    if not found:
        problem = "failed: it is not measured"
        return [usual | {"problem": problem}, best | {"problem": problem}]
    fastest = max(found, key=lambda each: each.speed)
    told = {"plan": taken.plan.name, "legal": len(listed), "measured": len(found)}
    first = time_record(found[0])
    return [
        usual | told | first | {"of_best": round(1 / fastest.speed, 4)},
        best
        | told
        | time_record(fastest)
        | {"device_us": round(found[0].time_us / fastest.speed, 3)}
        | {"wrong": sum([not each.speed for each in found])}
        | {"candidates": [detail(each, listed) for each in found]},
    ]


def is_right(product: Product, device: AnyDevice) -> bool:
    """Compare rows of a result on small whole numbers, whose sums are exact, with float64."""
    rng = np.random.default_rng(0)
    operands = [rng.integers(-2, 3, shape).astype(np.float32) for shape in product.shapes]
    held = [Tensor(each, dtype=product.dtype, device=device.name) for each in operands]
    rows = np.unique(np.linspace(0, product.m - 1, SAMPLED_ROWS).astype(int))
    result = product.made(held).numpy()[rows]
    a, b = [
        each.T if letter == "T" else each
        for each, letter in zip(operands[:2], product.layout, strict=True)
    ]
    want = rounded(a[rows].astype(np.float64) @ b.astype(np.float64), product.dtype)
    if product.has_bias:
        want = rounded(want + operands[2], product.dtype)
    return bool(np.array_equal(result.astype(np.float64), want))


def rounded(values: Array, dtype: DType) -> Array:
    """Round to a dtype: whole numbers here, that float32 holds exactly."""
    if dtype is dtypes.bfloat16:
        return round_to_bfloat16(values.astype(np.float32)).astype(np.float64)
    return values.astype(dtype.value_numpy).astype(np.float64)


def target_of(device: AnyDevice) -> Target:
    """Give what a device's kernels are planned for now."""
    return device.target.with_fp32_matmul(config.fp32_matmul)


def kernel_of(product: Product, device: AnyDevice, target: Target) -> Kernel:
    """Schedule a product of buffers that need no memory; give its kernel."""
    leaves: list[UOp] = [buffer(product.dtype, each, device.name) for each in product.shapes]
    result = product.made([Tensor._made(each, device.name) for each in leaves])
    options = Options(config.fuse, config.verify, config.stress)
    kernels = [call.kernel for call in schedule([result.uop], target, options)]
    (kernel,) = [each for each in kernels if each.contraction is not None]
    return kernel


def time_record(measured: Measured) -> Record:
    """Tell a candidate and its time."""
    return {"candidate": measured.name, "device_us": round(measured.time_us, 3)}


def detail(measured: Measured, listed: Sequence[Candidate]) -> Record:
    """Tell a candidate's time beside its estimate, where its plan gives one."""
    (candidate,) = [each for each in listed if each.name == measured.name]
    clocks = getattr(candidate, "clocks", None)
    estimate = {} if clocks is None else {"clocks": round(clocks)}
    return time_record(measured) | {"speed": round(measured.speed, 4)} | estimate


def line_of(records: Sequence[Record]) -> str:
    """Say in a line what was found."""
    usual, best = records
    if "problem" in usual:
        return f"{usual['work']:30} {usual['problem']}"
    wrong = f"  {best['wrong']} WRONG" if best["wrong"] else ""
    return (
        f"{usual['work']:30} {usual['device_us']:10.2f} us {usual['candidate']:24} "
        f"best {best['device_us']:10.2f} us {best['candidate']:28} "
        f"{usual['of_best']:.3f} of the best of {usual['measured']}/{usual['legal']}{wrong}"
    )


if __name__ == "__main__":
    sys.exit(main())
