"""Lists the records of all operators, and the names that have none."""

from collections.abc import Sequence
from dataclasses import replace

from extra.coverage import elementwise, folds, layers, makers, places, products, writes
from extra.coverage.draws import DRAWS
from tinytensor import Tensor, functions
from tinytensor.nn import functional

DESCRIBED = [
    *elementwise.RECORDS,
    *folds.RECORDS,
    *makers.RECORDS,
    *places.RECORDS,
    *products.RECORDS,
    *layers.RECORDS,
    *writes.RECORDS,
]

NAMED = {each.name: each for each in DESCRIBED}
ALIASED = [
    replace(NAMED[name], path=alias, examples=NAMED[name].examples[:1])
    for alias, name in functions.ALIASES.items()
    if alias not in NAMED
]
RECORDS = [*DESCRIBED, *ALIASED]

# What is no operator: attributes, conversions to Python and what gradients need.
OTHERS = """backward cast cell data detach detach_ device dtype empty from_numpy grad gradient
    is_leaf is_tensor item ndim numel numpy realize requires_grad requires_grad_ shape site size
    tolist uop"""


def names_without_record() -> Sequence[str]:
    """Return the public names of the package, Tensor and nn.functional that nothing describes."""
    known = {*OTHERS.split(), *[each.name for each in (*RECORDS, *DRAWS)]}
    constants = {*functions.CONSTANTS, *functions.DTYPES}
    public = {*functional.__all__, *functions.NAMES, *dir(Tensor)} - constants
    return sorted([name for name in public - known if not name.startswith("_")])
