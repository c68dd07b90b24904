"""A user's program, at lines that tests know."""

from tinytensor import nn
from tinytensor.nn.functional import gelu


class Block(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)

    def forward(self, x):
        widened = gelu(self.up(x))
        return x + self.down(widened)


class Network(nn.Module):
    """Two blocks."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.mean()
