"""Turns the environment's settings into one checked object, `config`."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tinytensor.records import dataclass

Value = bool | int | str

SWITCH = range(2)
UNBOUNDED = 2**63


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its name in the environment, its attribute of `config`, what it may hold.

    `allowed` lists the integers or words it may hold; it is None for a setting that holds any text.
    """

    name: str
    attribute: str
    default: Value
    allowed: range | tuple[str, ...] | None
    meaning: str

    def parse(self, text: str) -> Value:
        """Turn the environment's text into a value."""
        if not isinstance(self.allowed, range):
            return self.check(text)
        try:
            number = int(text)
        except ValueError:
            raise self.refusal(text) from None
        return self.check(number)

    def check(self, value: Value) -> Value:
        """Give the value in the setting's own type, or refuse it."""
        kind = int if isinstance(self.allowed, range) else str
        fits = isinstance(value, kind) and (self.allowed is None or value in self.allowed)
        if not fits:
            raise self.refusal(value)
        return type(self.default)(value)

    def refusal(self, value: Value) -> ValueError:
        """Word the error for a value that the setting cannot hold."""
        return ValueError(
            f"{self.name}: not an allowed value: {value!r}; must be {self.describe()}."
        )

    def describe(self) -> str:
        """Say in words what the setting may hold."""
        if self.allowed is None:
            return "a string"
        if isinstance(self.allowed, tuple):
            return f"one of {', '.join(self.allowed)}"
        if self.allowed.stop == UNBOUNDED:
            return f"an integer of at least {self.allowed.start}"
        return f"an integer from {self.allowed.start} to {self.allowed[-1]}"


SETTINGS = (
    Setting(
        "DEBUG", "debug", 0, range(7), "How much is printed; each level adds to the one below."
    ),
    Setting(
        "TT_FUSE",
        "fuse",
        3,
        range(4),
        "What may share a kernel: 0 nothing, 1 elementwise work before and after a sum, 2 also "
        "reductions over the same rows; 3 is kept for cascades and does what 2 does.",
    ),
    Setting("TT_VERIFY", "verify", False, SWITCH, "Check every form of a graph after every pass."),
    Setting(
        "TT_STRESS",
        "stress",
        False,
        SWITCH,
        "Choose the smallest tiles, the least memory and a shuffled order, and fill fresh memory "
        "with NaN, to find mistakes.",
    ),
    Setting(
        "TT_FP32_MATMUL",
        "fp32_matmul",
        "exact",
        ("exact", "3xtf32", "tf32"),
        "How products of float32 matrices are computed: in float32; or on GPUs that can do so from "
        "factors as sums of two TF32, with errors like those of float32 but for infinite factors; "
        "or from factors rounded to TF32, which keeps 10 bits of the fraction.",
    ),
    Setting(
        "TT_TUNE",
        "tune",
        "stored",
        ("stored", "0", "1"),
        "Which candidate of a kernel's plan is taken: the fastest that was ever measured here and "
        "stored, else the best by estimate; 0 by estimate alone; 1 measures the best few of every "
        "kernel that is compiled, and stores the fastest.",
    ),
    Setting("TT_DEVICE", "device", "", None, "The default device; empty: the best one present."),
    Setting(
        "TT_CACHE_DIR",
        "cache_dir",
        "",
        None,
        "The directory of the disk caches; empty: `tinytensor` in the user's cache directory.",
    ),
    Setting(
        "TT_CACHE_BYTES",
        "cache_bytes",
        2**30,
        range(UNBOUNDED),
        "The size in bytes above which the least recently used files of a disk cache go.",
    ),
)
BY_ATTRIBUTE = {setting.attribute: setting for setting in SETTINGS}


class Changes:
    """Counts the changes of settings, for who keeps what depends on them."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


CHANGES = Changes()


class Config:
    """The settings in force; read from the environment once, when the package is imported.

    An empty variable counts as an absent one. `with config(fuse=0): ...` changes settings for a
    while: a plain save and restore, so every thread sees the change, and the value found at the
    start comes back at the end.

    >>> with config(fuse=0, debug=2):
    ...     config.fuse
    0

    Raises: ValueError for a value that is not allowed, TypeError for a setting there is none of.
    """

    debug: int
    fuse: int
    verify: bool
    stress: bool
    fp32_matmul: str
    tune: str
    device: str
    cache_dir: str
    cache_bytes: int

    def __init__(self, environment: Mapping[str, str]) -> None:
        for setting in SETTINGS:
            text = environment.get(setting.name, "")
            setattr(self, setting.attribute, setting.parse(text) if text else setting.default)

    def __setattr__(self, attribute: str, value: Value) -> None:
        setting = BY_ATTRIBUTE.get(attribute)
        if setting is None:
            names = ", ".join(BY_ATTRIBUTE)
            raise TypeError(f"config: no such setting: {attribute}; must be one of {names}.")
        super().__setattr__(attribute, setting.check(value))
        self.note_change()

    def note_change(self) -> None:
        """Let all look again who keep what depends on settings."""
        CHANGES.count += 1

    @contextmanager
    def __call__(self, **changes: Value) -> Iterator[None]:
        """Change settings for the length of a `with` block."""
        before = dict(vars(self))
        try:
            for attribute, value in changes.items():
                setattr(self, attribute, value)
            yield
        finally:
            for attribute in changes.keys() & before.keys():
                setattr(self, attribute, before[attribute])


config = Config(os.environ)
