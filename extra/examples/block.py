"""Runs a small transformer block: DEBUG=2 python -m extra.examples.block shows its schedule."""

from __future__ import annotations

from tinytensor import Tensor
from tinytensor.nn import functional

BATCH, LENGTH, WIDTH, HEADS = 2, 256, 128, 4


def block(x: Tensor, into: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Attend, then widen and narrow, each on normalized rows and beside what it came from."""
    rows = functional.layer_norm(x, (WIDTH,))
    heads = (rows @ into).reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
    x = x + mixed.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH) @ out
    rows = functional.layer_norm(x, (WIDTH,))
    return x + functional.gelu(rows @ up) @ down


def build() -> Tensor:
    """Return a block of ones, not yet computed."""
    shapes = (BATCH, LENGTH, WIDTH), (WIDTH, 3 * WIDTH), (WIDTH,) * 2, (WIDTH, 4 * WIDTH)
    operands = [Tensor.ones(*each).realize() for each in (*shapes, (4 * WIDTH, WIDTH))]
    return block(*operands)


if __name__ == "__main__":
    build().realize()
