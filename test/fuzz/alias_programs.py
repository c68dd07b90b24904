"""Random programs of views, writes and reads: grown beside NumPy, printed, run anywhere, shrunk."""

import contextlib
import re
from dataclasses import dataclass

import numpy as np
from fuzz.numpy_mirror import Mirror, Package, in_rows

import tinytensor

PRELUDE = """
def leaf(shape, dtype, start):
    count = 1
    for extent in shape:
        count *= extent
    values = (t.arange(count) * 7 + start) % 9 - 4
    return values.reshape(shape).to(dtype).clone()

def backward(*tensors):
    total = 0
    for x in tensors:
        if x.requires_grad:
            ways = t.arange(x.numel()) % 5 - 1
            total = total + (x * ways.reshape(x.shape)).sum()
    if not isinstance(total, int):
        total.backward()
"""
APART = {True: "def apart(x): return x\n", False: "def apart(x): return x.clone()\n"}
REFUSALS = (RuntimeError, IndexError, TypeError, ValueError, NameError, AttributeError)
MOST = 40  # no number of a program is larger, so that all sums and products are exact


@dataclass(frozen=True)
class Step:
    """A line of a program; `made` is the name it assigns to, `kind` says what of."""

    kind: str  # leaf, view, fresh, write, read or end
    text: str
    made: str = ""

    @property
    def line(self):
        return f"{self.made} = {self.text}" if self.made else self.text


@dataclass(frozen=True)
class Seen:
    """What a step showed: the error of a refusal, or a tensor's name, facts and values."""

    step: Step
    error: str = ""
    facts: tuple = ()
    values: object = None


class Run:
    """Runs a program in a package; `seen` lists what it showed."""

    def __init__(self, package, look, made=lambda _, x: x):
        self.look = look
        self.made = made
        self.names = {"t": package}
        self.seen = []
        exec(PRELUDE + APART[package is tinytensor], self.names)

    def take(self, step):
        try:
            if step.kind == "read":
                how, name = step.text.removesuffix(")").split("(")
                self.seen.append(Seen(step, "", *self.look(eval(name, self.names), how)))
            elif step.made:
                self.names[step.made] = self.made(step.kind, eval(step.text, self.names))
            else:
                exec(step.text, self.names)
        except REFUSALS as error:
            self.names.pop(step.made, None)
            self.seen.append(Seen(step, f"{type(error).__name__}: {error}"))
            return False
        return True

    def take_all(self, steps):
        for step in steps:
            self.take(step)
        return self.seen


def look_at_mirror(x, _how):
    return (x.shape, x.dtype.name), x.array.copy()


def mirror_of(steps):
    """A run beside NumPy."""
    run = Run(Package, look_at_mirror, in_rows)
    with np.errstate(all="ignore"):
        run.take_all(steps)
    return run


def show(steps):
    """A program as code that runs, with either package as t."""
    lines = ["import tinytensor as t  # or torch", *PRELUDE.splitlines()]
    lines += [APART[True].strip() + "  # with torch: x.clone()", ""]
    for step in steps:
        is_read = step.kind == "read"
        lines.append(f"print({step.text.split('(')[1]}" if is_read else step.line)
    return "\n".join(lines)


# Shrinking.
def shrink(steps, fails):
    """Return a program that fails too, with steps taken out and numbers made smaller."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in smaller(steps):
            if fails(candidate):
                steps, is_smaller = candidate, True
                break
    return steps


def smaller(steps):
    for size in (8, 4, 2, 1):
        for at in range(len(steps) - size, -1, -1):
            yield steps[:at] + steps[at + size :]
    for at, step in enumerate(steps):
        names = step.text.removeprefix("backward(").removesuffix(")").split(", ")
        for name in names if step.kind == "end" and len(names) > 1 else ():
            fewer = ", ".join([each for each in names if each != name])
            yield [*steps[:at], Step("end", f"backward({fewer})"), *steps[at + 1 :]]
        for match in re.finditer(r"(?<![\w.])\d+(?![\w.])", step.text):
            if int(match[0]) > 0:
                text = f"{step.text[: match.start()]}{int(match[0]) - 1}{step.text[match.end() :]}"
                yield [*steps[:at], Step(step.kind, text, step.made), *steps[at + 1 :]]


# Growing.
class Grower:
    """Grows a program step by step; a step that the mirror refuses mostly stays out of it."""

    def __init__(self, seed, with_grads=False):
        self.rng = np.random.default_rng(seed)
        self.with_grads = with_grads
        self.reads_at_once = self.chance(0.5)
        self.steps = []
        self.run = mirror_of([])
        for _ in range(self.integer(1, 3)):
            self.leaf(with_grads)
        count = self.integer(5, 14)
        for _ in range(4 * count):
            if len(self.steps) < count + 2:
                self.grow()
        if with_grads:
            names = ", ".join(self.shuffled(self.names))
            self.steps.append(Step("end", f"backward({names})"))
            leaves = [each.made for each in self.steps if each.kind == "leaf"]
            self.steps += [Step("read", f"grad({name})") for name in leaves]
        self.steps += [self.read(name) for name in self.shuffled(self.names)]

    def chance(self, share):
        return bool(self.rng.random() < share)

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def shuffled(self, values):
        return [values[at] for at in self.rng.permutation(len(values))]

    @property
    def names(self):
        return [name for name, value in self.run.names.items() if isinstance(value, Mirror)]

    def value(self, name):
        return self.run.names[name].array

    def fresh_name(self):
        return f"v{len(self.steps)}"

    def add(self, step):
        """Take a step beside NumPy; it is forgotten where numbers or tensors grow too large."""
        is_refused = not self.run.take(step)
        values = [self.value(name) for name in self.names]
        fits = all(np.all(np.abs(each.astype(float)) <= MOST) for each in values if each.size)
        fits &= max([each.size for each in values], default=0) <= 200
        if fits and not (is_refused and self.chance(0.8)):
            self.steps.append(step)
        else:
            self.run = mirror_of(self.steps)

    def leaf(self, with_grad=False):
        shape = tuple([self.pick([1, 2, 2, 3, 3, 4]) for _ in range(self.integer(1, 3))])
        shape = self.pick([shape, shape, shape, shape, (), () if self.with_grads else (0, 2)])
        name = self.pick(("float32", "float32", "float64", "int64", "int32", "float16", "bool"))
        dtype = self.pick(("float32", "float32", "float64")) if with_grad else name
        text = f"leaf({shape}, t.{dtype}, {self.integer(0, 8)})"
        needs = with_grad and self.chance(0.8)
        self.add(Step("leaf", text + ".requires_grad_()" * needs, self.fresh_name()))

    def read(self, name):
        how = self.pick(["tolist", "numpy", "realize", "tolist"])
        return Step("read", f"{how}({name})")

    def grow(self):
        name = self.pick(self.names)
        kinds = [self.view] * 4 + [self.fresh] * 3 + [self.write] * 5
        if self.chance(0.05):
            self.leaf()
        elif self.reads_at_once and self.chance(0.2):
            self.add(self.read(name))
        else:
            self.pick(kinds)(name)

    def view(self, name):
        x = self.value(name)
        text = self.pick(VIEWS)(self, x)
        if text is not None:
            self.add(Step("view", name + text, self.fresh_name()))

    def fresh(self, name):
        text = self.pick(FRESH)(self, self.value(name), name)
        if text is not None:
            self.add(Step("fresh", text, self.fresh_name()))

    def write(self, name):
        x = self.value(name)
        text = None if overlaps(x) else self.pick(WRITES)(self, x, name)
        if text is not None:
            moves_axes = "squeeze_" in text or "transpose_" in text  # refused for a leaf
            without = self.with_grads and not moves_axes and self.chance(0.2)
            self.add(Step("write", ("with t.no_grad(): " if without else "") + text))

    # Arguments.
    def axis(self, x):
        return self.integer(0, max(x.ndim - 1, 0))

    def number(self, x):
        return self.pick(["True", "False"]) if x.dtype.kind == "b" else self.integer(-3, 3)

    def operand(self, x, target=None):
        """The name of a tensor that broadcasts with x, or to it; apart from it if x is written."""
        names = []
        for name in self.names:
            with contextlib.suppress(ValueError):
                shape = np.broadcast_shapes(self.value(name).shape, x.shape)
                names += [name] if target is None or shape == x.shape else []
        if not names:
            return None
        name = self.pick(names)
        shares = target is not None and np.may_share_memory(self.value(name), self.value(target))
        return f"apart({name})" if shares else name

    def index(self, x):
        """A basic index, as text."""
        written = []
        for extent in x.shape[: self.integer(0, x.ndim)]:
            low, high = self.integer(0, extent), self.integer(0, extent)
            choices = [f"{low}:", f":{high}", f"{low}:{max(low, high)}", "::2", "1::2", ":"]
            choices += [str(self.integer(-extent, extent - 1))] * 3 if extent else []
            written.append(self.pick(choices))
        if self.chance(0.2):
            written.insert(self.integer(0, len(written)), "None")
        if self.chance(0.2) or not written:
            written.append("...")
        return ", ".join(written)

    def chosen(self, extent, count):
        """Different places along an axis, as a list."""
        return self.shuffled(range(extent))[:count]

    def mask(self, x):
        shaped = [name for name in self.names if self.value(name).shape == x.shape]
        return f"({self.pick(shaped)} > 0)"


def overlaps(x):
    """Whether windows share elements: what a write to them does is undefined in PyTorch."""
    axes = [axis for axis, extent in enumerate(x.shape) if extent > 1]
    grids = np.indices(x.shape, sparse=True)
    places = sum([grids[axis] * x.strides[axis] for axis in axes], np.zeros(x.shape, int))
    return 0 not in [x.strides[axis] for axis in axes] and np.unique(places).size < x.size


def by_extents(g, x):
    count, sizes = x.size, []
    for factor in (2, 3, 2):
        if count and count % factor == 0 and g.chance(0.6):
            sizes.append(factor)
            count //= factor
    sizes = g.shuffled([*sizes, count])
    return ", ".join(map(str, sizes))


def expanded(g, x):
    sizes = [g.pick([2, 3, -1]) if n == 1 else -1 for n in x.shape]
    front = [g.integer(1, 2)] if g.chance(0.3) or not sizes else []
    return f".expand({', '.join(map(str, front + sizes))})"


def diagonal(g, x):
    if x.ndim < 2:
        return None
    first, second = g.chosen(x.ndim, 2)
    return f".diagonal({g.integer(-1, 1)}, {first}, {second})"


def narrowed(g, x):
    axis = g.axis(x)
    extent = x.shape[axis] if x.ndim else 0
    start = g.integer(0, extent)
    return f".narrow({axis}, {start}, {g.integer(0, extent - start)})"


def unfolded(g, x):
    axis = g.axis(x)
    if not x.ndim or not x.shape[axis]:
        return None
    return f".unfold({axis}, {g.integer(1, min(x.shape[axis], 3))}, {g.integer(1, 2)})"


def one_part(g, x):
    if not x.ndim or not x.shape[0] or g.with_grads:
        return None  # PyTorch refuses to write to one of several outputs of a view
    axis = g.axis(x)
    return g.pick([f".unbind({axis})[0]", f".split(1, {axis})[-1]", f".chunk(2, {axis})[0]"])


VIEWS = (
    lambda g, x: f".transpose({g.axis(x)}, {g.axis(x)})",
    lambda g, x: f".permute({', '.join(map(str, g.chosen(x.ndim, 9)))})" if x.ndim else None,
    lambda g, x: f".reshape({by_extents(g, x)})",
    lambda g, x: f".view({by_extents(g, x)})",
    lambda g, x: ".flatten()",
    lambda g, x: f".unsqueeze({g.integer(0, x.ndim)})",
    lambda g, x: f".squeeze({g.axis(x)})" if x.ndim else None,
    expanded,
    expanded,
    diagonal,
    diagonal,
    narrowed,
    unfolded,
    one_part,
    lambda g, x: f".select({g.axis(x)}, {g.integer(0, 1)})",
    lambda g, x: f".movedim({g.axis(x)}, {g.axis(x)})" if x.ndim else None,
    # What is written to a detached view is tracked again here, and is not in PyTorch.
    lambda g, x: None if g.with_grads else ".detach()",
    lambda g, x: ".contiguous()",
    *[lambda g, x: f"[{g.index(x)}]"] * 5,
)


def added(g, x, name):
    return f"{name} {g.pick('+*-')} {g.pick([g.operand(x), str(g.number(x))])}"


def folded(g, x, name):
    if x.dtype.kind == "b" or not x.size or not x.ndim:
        return None
    return f"{name}.{g.pick(['sum', 'amax'])}({g.axis(x)}, keepdim={g.chance(0.5)})"


def joined(g, x, name):
    same = [n for n in g.names if g.value(n).shape == x.shape and g.value(n).dtype == x.dtype]
    join = g.pick(["cat", "stack"]) if x.ndim else "stack"
    return f"t.{join}([{name}, {g.pick(same)}], {g.axis(x)})"


def multiplied(g, x, name):
    if x.ndim != 2 or x.dtype.kind != "f":
        return None
    return f"{name} @ {name}.transpose(0, 1)"


def taken(g, x, name):
    if not x.ndim or not x.size:
        return None
    axis = g.axis(x)
    indices = [g.integer(0, x.shape[axis] - 1) for _ in range(g.integer(1, 3))]
    front = ":, " * axis
    ways = [f"{name}[{front}{indices}]", f"{name}.index_select({axis}, t.tensor({indices}))"]
    return g.pick([*ways, f"{name}[{name} > 0]" if x.dtype.kind != "b" else ways[0]])


def converted(g, x, name):
    other = g.pick([n for n in ("float32", "float64", "int32") if n != x.dtype.name])
    return f"{name}.to(t.{other})"


FRESH = (
    added,
    added,
    added,
    folded,
    joined,
    multiplied,
    taken,
    converted,
    lambda g, x, name: f"{name}{g.pick(['', '.detach()'])}.clone()",
    lambda g, x, name: f"{name}.where({g.mask(x)}, {g.operand(x)})",
    lambda g, x, name: (
        f"{name}.{g.pick(['neg', 'abs', 'relu'])}()" if x.dtype.kind != "b" else None
    ),
    lambda g, x, name: f"{name}.clamp(-1, 2)" if x.dtype.kind != "b" else None,
    lambda g, x, name: f"{name}.flip({g.axis(x)})" if x.ndim else None,
    lambda g, x, name: f"{name}.roll(1, {g.axis(x)})" if x.ndim else None,
    lambda g, x, name: (
        f"{name}.sort(stable=True, dim={g.axis(x)})[0]" if x.dtype.kind != "b" else None
    ),
)


def computed(g, x, name):
    method = g.pick(["add_", "mul_", "sub_"])
    return f"{name}.{method}({g.pick([g.operand(x, name), str(g.number(x))])})"


def by_operator(g, x, name):
    return f"{name} {g.pick('+*-')}= {g.pick([g.operand(x, name), str(g.number(x))])}"


def assigned(g, x, name):
    index = g.index(x)
    try:
        target = Mirror(x)[eval(f"np.s_[{index}]", {"np": np})].array
    except IndexError:
        return None
    source = g.operand(target, name)
    sign = g.pick(["", "", "", "+", "*"])
    return f"{name}[{index}] {sign}= {g.pick([source or '1', str(g.number(x))])}"


def placed(g, x, name):
    """Assignment to computed places; different ones, so that order says nothing."""
    if not x.ndim or not x.size or 0 in x.strides:
        return None  # expanded ones are refused here, and PyTorch warns
    axis = g.axis(x)
    indices = g.chosen(x.shape[axis], g.integer(1, 3))
    part = np.take(x, indices, axis)
    source = g.operand(part, name) or "1"
    value = g.pick([source, str(g.number(x))])
    same = [n for n in g.names if g.value(n).shape == part.shape]
    same = [n for n in same if g.value(n).dtype == x.dtype]
    tensor = f"apart({g.pick(same)})" if same else f"apart({name}).index_select({axis}, {{}})"
    tensor = tensor.format(f"t.tensor({indices})")
    ways = [
        f"{name}[{':, ' * axis}{indices}] = {value}",
        f"{name}[{':, ' * axis}{indices}] += {g.number(x)}",
        f"{name}[apart({g.mask(x)})] = {g.number(x)}",
        f"{name}.masked_fill_(apart({g.mask(x)}), {g.number(x)})",
        f"{name}.index_fill_({axis}, t.tensor({indices}), {g.number(x)})",
        f"{name}.index_copy_({axis}, t.tensor({indices}), {tensor})",
    ]
    if x.dtype.kind != "b":
        ways.append(f"{name}.index_add_({axis}, t.tensor({indices}), {tensor})")
    return g.pick(ways)


def scattered(g, x, name):
    if not x.ndim or not x.size or x.dtype.kind == "b":
        return None
    axis = g.axis(x)
    index = np.zeros([1] * x.ndim, int) + g.integer(0, x.shape[axis] - 1)
    indices = f"t.tensor({index.tolist()})"
    ways = [
        f"{name}.scatter_({axis}, {indices}, {g.number(x)})",
        f"{name}.scatter_({axis}, {indices}, apart({name}))",
        f"{name}.scatter_add_({axis}, {indices}, apart({name}))",
        f"{name}.index_put_((t.tensor([0, 0]),), apart({name})[0], accumulate=True)",
        f"{name}.masked_scatter_(apart({g.mask(x)}), apart({name}))",
    ]
    return g.pick(ways)


def plain(g, x, name):
    signed = ["neg_()", "abs_()", "relu_()", "clamp_(-1, 2)", "remainder_(5)"]
    anywhere = ["zero_()", f"fill_({g.number(x)})"]
    shapes = [f"transpose_({g.axis(x)}, {g.axis(x)})", "unsqueeze_(0)"]
    choice = g.pick(anywhere + shapes + (signed if x.dtype.kind != "b" else []))
    return f"{name}.{choice}"


WRITES = (
    computed,
    computed,
    by_operator,
    assigned,
    assigned,
    assigned,
    placed,
    placed,
    scattered,
    plain,
    plain,
    lambda g, x, name: f"{name}.copy_({g.operand(x, name)})",
)
