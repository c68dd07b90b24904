"""Builds a network of the shape of GPT-2, to be trained on words drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinytensor import Tensor, nn
from tinytensor.nn.functional import gelu, scaled_dot_product_attention


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a network is; the default has the 124 million weights of the smallest GPT-2."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    vocabulary: int = 50257
    longest: int = 1024


class Attention(nn.Module):
    """Mix each position with those before it: (b, t, width) -> (b, t, width)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.into = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """Project to queries, keys and values of all heads, attend, project back."""
        batch, length, width = x.shape
        split = self.into(x).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attend and widen, each on normalized rows and beside what it came from."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.before = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.between = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows of the next layer."""
        x = x + self.attention(self.before(x))
        return x + self.down(gelu(self.up(self.between(x)), approximate="tanh"))


class Network(nn.Module):
    """Score each next word: words (b, t) int64 -> scores (b, t, vocabulary).

    As in GPT-2, the table of the words is also the matrix that scores them.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.longest, shape.width)
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.last = nn.LayerNorm(shape.width)

    def forward(self, words: Tensor) -> Tensor:
        """Return the scores."""
        places = Tensor.arange(words.shape[1])
        x = self.words(words) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.last(x) @ self.words.weight.T


def draw_words(shape: Shape, batch: int, length: int, step: int) -> tuple[Tensor, Tensor]:
    """Return words (b, t) and the words that follow them."""
    drawn = np.random.default_rng(step).integers(0, shape.vocabulary, (batch, length + 1))
    return Tensor(drawn[:, :-1].copy()), Tensor(drawn[:, 1:].copy())
