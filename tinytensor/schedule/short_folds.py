"""Computes short folds where they are read, once each, in place of a kernel that stores them.

The gradient of windows that step is woven of folds that take their own taps each. A thread that
folds whole results folds those of its elements.

Takes:  regions with their outputs, and what reads them.
Gives:  fewer regions; the reader of what they would store computes it.
Placed: after `materialize`, before rows are joined, as a region that is gone joins none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.schedule.describe import Draft
from tinytensor.schedule.materialize import Chooser
from tinytensor.schedule.region import Region

# All folds of a reader are computed where no place says which is read. In us on H200 (8fee6fc,
# 2026-11-30): nine products of one tap each take 438 so, stored and woven 139.
MOST_FOLDS = 4
MOST_FOLDED = 16  # elements


def fold_where_read(
    outputs: Mapping[Region, tuple[UOp, ...]], chooser: Chooser
) -> dict[Region, tuple[UOp, ...]]:
    """Return the regions without the short folds of which another reads each result once."""
    regions = {each.anchor: each for each in outputs}
    found: dict[UOp, list[UOp]] = {}
    for region, nodes in outputs.items():
        reader = _reader_of(region, nodes, chooser)
        if reader is not None:
            found.setdefault(reader, []).append(region.anchor)
    kept = dict(outputs)
    for reader, folds in found.items():
        is_short = len(folds) <= MOST_FOLDS and max(map(_count_folded, folds)) > 1
        for fold in folds if is_short else ():
            if chooser.move(fold, reader):
                reason = "each result of a short fold is read once, and computed there."
                regions[reader].drafts.append(Draft("fuse", fold, (reason,)))
                del kept[regions[fold]]
    return kept


def _reader_of(region: Region, nodes: Collection[UOp], chooser: Chooser) -> UOp | None:
    """Return the anchor that reads each result of a short fold once, and folds nothing itself."""
    anchor = region.anchor
    is_fold = anchor.op is Op.REDUCE and anchor not in chooser.contractions
    if not is_fold or len(nodes) > 1 or _count_folded(anchor) > MOST_FOLDED:
        return None
    (node,) = nodes
    readings = chooser.readings_outside(region, node)
    if node in chooser.roots or len(readings) != 1:
        return None
    ((reader, reading),) = readings.items()
    is_once = reading.evaluations <= math.prod(node.shape)
    return reader if is_once and reader in chooser.stored else None


def _count_folded(anchor: UOp) -> int:
    """Return of how many elements each result is folded."""
    return math.prod(anchor.operands[0].shape) // max(1, math.prod(anchor.shape))
