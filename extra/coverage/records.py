"""Lists the records of all operators, and the names that have none."""

from collections.abc import Sequence

from extra.coverage import elementwise, folds, layers, makers, places, products
from extra.coverage.draws import DRAWS
from tinytensor import Tensor
from tinytensor.nn import functional

RECORDS = [
    *elementwise.RECORDS,
    *folds.RECORDS,
    *makers.RECORDS,
    *places.RECORDS,
    *products.RECORDS,
    *layers.RECORDS,
]

# What is no operator: attributes, conversions to Python and what gradients need.
OTHERS = """backward cast cell detach device dtype empty grad gradient is_leaf item ndim numel numpy
    realize requires_grad requires_grad_ shape site size tolist uop"""


def names_without_record() -> Sequence[str]:
    """Return the public names of Tensor and of nn.functional that nothing here describes."""
    known = {*OTHERS.split(), *[each.name for each in (*RECORDS, *DRAWS)]}
    public = {*functional.__all__, *[name for name in dir(Tensor) if not name.startswith("_")]}
    return sorted(public - known)
