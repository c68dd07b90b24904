"""Says where the time of a first training step goes: `python -m extra.bench.cold`.

The process has just begun and the disk cache is empty. What is trained has the shape of the
smallest GPT-2; a short sequence keeps the kernels' own time small.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from extra.bench.table import place
from extra.examples.gpt2 import Network, Shape, draw_words
from tinytensor import config, manual_seed, optim, profile
from tinytensor.nn.functional import cross_entropy
from tinytensor.profile import BUILD
from tinytensor.timing import own_seconds, stage

MOST_SECONDS = 12.0
HEAD_WIDTH = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Take two steps; give 1 when the first took longer than it may."""
    options = parse(arguments)
    where = place()
    print(f"{where['machine']}, {where['commit']}, {where['date']}")
    with tempfile.TemporaryDirectory() as directory, config(cache_dir=directory):
        manual_seed(0)
        heads = max(1, options.width // HEAD_WIDTH)
        shape = Shape(options.layers, heads, options.width, options.vocabulary)
        network = Network(shape)
        optimizer = optim.AdamW(network.parameters(), lr=1e-4)
        seconds = [take_step(network, optimizer, options, number) for number in range(2)]
        binaries = len(list(Path(directory).rglob("*.so")))
    print(f"{binaries} binaries are in the cache, those of the first weights' kernels included")
    return int(seconds[0] > MOST_SECONDS)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    usual = Shape()
    parser = argparse.ArgumentParser("python -m extra.bench.cold", description=__doc__)
    parser.add_argument("--layers", type=int, default=usual.layers)
    parser.add_argument("--width", type=int, default=usual.width)
    parser.add_argument("--vocabulary", type=int, default=usual.vocabulary)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=64)
    return parser.parse_args(arguments)


def take_step(
    network: Network, optimizer: optim.Optimizer, options: argparse.Namespace, number: int
) -> float:
    """Take one step, print what its stages took; return the seconds that no kernel ran."""
    children, cpu = child_seconds(), time.process_time()
    with profile() as found:
        with stage("graph: forward"):
            words, following = draw_words(network.shape, options.batch, options.length, number)
            scores = network(words).flatten(0, 1)
            loss = cross_entropy(scores, following.flatten())
        with stage("graph: gradients"):
            optimizer.zero_grad()
            loss.backward()
        with stage("graph: step"):
            optimizer.step()
    cpu = time.process_time() - cpu
    stages = [each for each in found.stages if each.name != BUILD]  # those run side by side
    walls, processors = own_seconds(stages), own_seconds(stages, lambda each: each.cpu_seconds)
    counts = Counter(each.name for each in stages)
    made, distinct = counts["schedule: kernels"], counts["lower: record"]
    print(f"step {number + 1}: {made} kernels were scheduled, {distinct} are distinct")
    print(f"{'':28}{'wall s':>9}{'cpu s':>9}{'calls':>8}")
    for name, wall in walls.items():
        print(f"  {name:26}{wall:9.2f}{processors[name]:9.2f}{counts[name]:8}")
    print(f"  {'C compiler, its processes':26}{'':9}{child_seconds() - children:9.2f}")
    print(f"  {'all':26}{found.seconds:9.2f}{cpu + child_seconds() - children:9.2f}", flush=True)
    return found.seconds - walls.get("allocate", 0.0) - walls.get("launch", 0.0)


def child_seconds() -> float:
    """Return the processor time of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
