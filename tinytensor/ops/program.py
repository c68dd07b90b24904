"""What codegen hands to the runtime: source text and how to call it."""

from __future__ import annotations

from tinytensor.records import dataclass


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What the bulk copy engine is told of a buffer: param `number`, or the workspace's at -1.

    Shape and box in elements, innermost first. Units: `offset_bytes` from the buffer's begin;
    `strides_bytes` of the axes after the first. With `rounds`, float32 is rounded to TF32. With
    `extents`, words for index expressions over scalars, `shape` is the greatest. A box takes each
    step-th place of an axis, where there are `steps`.
    """

    number: int
    offset_bytes: int
    itemsize: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    rounds: bool = False
    extents: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


INSTANCE_WORDS = 512  # 4 KiB: what every GPU takes as parameters of a launch


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """How a GPU runs one entry: blocks of threads. Units: `shared_bytes` of dynamic shared memory.

    `tensor_maps` are the entry's last arguments, in order; the runtime encodes each from its
    buffer's address and passes the 128 bytes by value. An entry that
    `waits_itself` may start while the launch before it ends: it touches memory only after waiting.
    Where `across` is given, the text of an index expression over scalars, that many blocks run
    along x, at least one.
    An instanced entry takes `block_elements` of one instance a block, and as many blocks as it
    needs; its one parameter is a table of INSTANCE_WORDS words: the number of instances, and for
    each its first block, its extent and its addresses.
    """

    entry: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    tensor_maps: tuple[TensorMap, ...] = ()
    waits_itself: bool = False
    block_elements: int = 0
    across: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """One compiled unit: self-contained source with one entry, or with one for each GPU launch.

    The entry takes `params` buffer addresses in order and, when `workspace_bytes` is above 0, the
    address of that much scratch memory, 64-byte aligned; then `scalars`, each an int64 (q) or a
    float64 (d). For the CPU the source exports `<name>_step`, a function of their address as 64-bit
    words, with the extent before them if it is instanced, and `<name>_is_long`, an int that tells
    whether other threads should run meanwhile. For a GPU `launches` are run in order, each with
    them all.
    """

    name: str
    source: str
    params: int
    workspace_bytes: int
    libraries: tuple[str, ...] = ()
    launches: tuple[LaunchShape, ...] = ()
    scalars: str = ""
