"""Measures works one after another in a process of its own, a line of JSON for each outcome.

`python -m extra.bench.gpu.worker '{"works": [...], "engines": [...], "seconds": 20}'`: whoever
started it ends it when a work hangs, and starts another for the works that are left.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from extra.bench.gpu.engines import GPU_ENGINES, Engine
from extra.bench.gpu.measure import Floor, Outcome, measure
from extra.bench.gpu.works import find_works
from tinytensor.lazy import lazy_import
from tinytensor.runtime.device import Device

PACKAGES = ("torch", "triton", "jax", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy")
LOST_GPU = 3  # the exit status after an error that no later call survives


def main() -> int:
    """Run the works named by the one argument."""
    asked = json.loads(sys.argv[1])
    torch = lazy_import("torch", None, "bench")
    engines = open_engines(asked["engines"])
    say({"place": describe(torch)})
    for work in find_works(asked["works"]):
        say({"begin": work.name})
        outcomes, floor = measure(work, engines, torch, time.monotonic() + asked["seconds"])
        for outcome in outcomes:
            say(record_of(outcome, floor))
        say({"end": work.name})
        torch.cuda.empty_cache()
        Device["CUDA"].allocator.release_cached()
        if not is_alive(torch):
            return LOST_GPU
    return 0


def say(record: dict[str, Any]) -> None:
    """Write a line."""
    print(json.dumps(record), flush=True)


def open_engines(names: list[str]) -> list[Engine]:
    """Open engines; one that is not installed is left out and named."""
    opened: list[Engine] = []
    for kind in GPU_ENGINES:
        if kind.name not in names:
            continue
        try:
            opened.append(kind())
        except ImportError as error:
            say({"missing": kind.name, "reason": str(error)})
    return opened


def describe(torch: Any) -> dict[str, str]:  # noqa: ANN401 - a module
    """Say which GPU, driver and packages these are."""
    driver = Device["CUDA"].driver.call("cuDriverGetVersion")
    found = {"device": torch.cuda.get_device_name(0), "driver": str(driver)}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def record_of(outcome: Outcome, floor: Floor) -> dict[str, Any]:
    """Turn an outcome into what its line holds."""
    work = outcome.work
    names = [each.name for each in dataclasses.fields(outcome) if each.name != "work"]
    kept = {name: getattr(outcome, name) for name in names}
    numbers = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in kept.items()
        if value != "" and not (isinstance(value, float) and math.isnan(value))
    }
    seconds = outcome.device_us / 1e6
    rates = {
        "tflops": round(work.flops / seconds / 1e12, 3),
        "gbytes": round(work.bytes_moved / seconds / 1e9, 1),
    }
    roofs = {"copy_us": round(floor.copy_us, 3), "floor_us": round(floor.least_us, 3)}
    named = {"work": work.name, "row": work.row}
    return named | numbers | roofs | ({} if outcome.problem else rates)


def is_alive(torch: Any) -> bool:  # noqa: ANN401 - a module
    """Tell whether the GPU still answers this process."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
