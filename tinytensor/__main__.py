"""Shows what works on this machine: `python -m tinytensor` runs the project's two lines."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

import numpy as np

from tinytensor import __version__, selfcheck
from tinytensor.errors import DeviceError, TinyTensorError
from tinytensor.report import schedule_lines
from tinytensor.runtime.device import DEVICE_MODULES, Device, missing_devices
from tinytensor.selfcheck import Line, Verdict
from tinytensor.target import Target


def main(arguments: Sequence[str] | None = None) -> int:
    """Report the devices, run the lines on each, and give 1 if anything is wrong."""
    options = parse(arguments)
    print(f"tinytensor {__version__}, Python {platform.python_version()}, NumPy {np.__version__}")
    missing = missing_devices()
    for each in DEVICE_MODULES:
        print(device_line(each.name, missing.get(each.name)))
    usable = [each.name for each in DEVICE_MODULES if each.name not in missing]
    names = [options.device] if options.device else usable
    results = [is_right for name in names for is_right in run_all(name, options.quick)]
    wrong = results.count(False)
    print(f"\n{wrong} of {len(results)} are wrong." if wrong else "\nAll is right.")
    return 1 if wrong else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m tinytensor", description=__doc__)
    parser.add_argument("--device", help="run on this device alone")
    parser.add_argument("--quick", action="store_true", help="run at small sizes")
    return parser.parse_args(arguments)


def device_line(name: str, reason: str | None) -> str:
    """Describe a device, or say why it is missing."""
    facts = f"missing: {reason}" if reason else target_facts(Device[name].target)
    return f"  {name:8}{facts}"


def target_facts(target: Target) -> str:
    """Say what the compiler knows about a machine."""
    if target.kind == "python":
        return "needs no compiler: runs kernels with NumPy"
    features = " ".join(sorted(target.features))
    if target.kind == "cuda":
        shared = f"{target.shared_bytes >> 10} KiB of shared memory a block"
        return f"{target.name}, {target.multiprocessors} multiprocessors, {shared} ({features})"
    vectors = f"{target.registers} vector registers of {target.vector_bytes} bytes"
    return f"{vectors} ({features}), L2 {target.l2_bytes >> 10} KiB"


def run_all(name: str, quick: bool) -> list[bool]:
    """Check the lines on a device; one that is not there is wrong."""
    try:
        device = Device[name].name
    except DeviceError as error:
        print(f"\n{error}")
        return [False]
    return [run(line, device) for line in selfcheck.lines(quick)]


def run(line: Line, device: str) -> bool:
    """Check a line on a device, print what was found, and tell whether it is right."""
    shapes = ", ".join(str(shape) for shape in line.shapes)
    print(f"\n{device:8}{line.text}   {line.dtype} {shapes}")
    try:
        verdict = selfcheck.check(line, device)
    except TinyTensorError as error:
        print(f"  failed: {error}")
        return False
    for text in verdict_lines(verdict):
        print(f"  {text}")
    return verdict.is_right


def verdict_lines(verdict: Verdict) -> list[str]:
    """Say what running a line showed: time, both comparisons, kernels and their reasons."""
    kernels = verdict.kernels
    count = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
    times = f"cold {duration(verdict.cold_us)}, warm {duration(verdict.warm_us)}"
    near = answer(verdict.error <= 1)
    kept = answer(verdict.broken == 0)
    return [
        f"{count}, {times}, {verdict.gflops:.1f} GFLOP/s",
        f"as float64           {near}: largest error {verdict.error:.2g} of the bound",
        f"roundings as written {kept}: {verdict.broken} of {verdict.elements} elements differ",
        *schedule_lines(kernels),
    ]


def answer(holds: bool) -> str:
    """Say whether something is as it should be."""
    return "yes" if holds else "NO"


def duration(time_us: float) -> str:
    """Write a time in the unit that suits it.

    >>> duration(12345.6)
    '12.3 ms'
    """
    return f"{time_us:.1f} us" if time_us < 1000 else f"{time_us / 1000:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
