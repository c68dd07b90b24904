"""NumPy arrays under PyTorch's names: an eager oracle, whose views alias."""

import contextlib

import numpy as np

NAMES = ("float32", "float64", "float16", "int64", "int32", "int16", "bool")
KINDS = "bif"  # in the order of promotion


def promote(x, y):
    """The dtype that two arrays have together; one without axes yields within its category."""
    first, second = KINDS.index(x.dtype.kind), KINDS.index(y.dtype.kind)
    if first != second:
        return (x if first > second else y).dtype
    if (x.ndim == 0) != (y.ndim == 0):
        return (y if x.ndim == 0 else x).dtype
    return np.promote_types(x.dtype, y.dtype)


def as_operand(x, number):
    """A number as an array, in the dtype it takes beside an array."""
    if isinstance(number, Mirror):
        return number.array
    kind = np.asarray(number).dtype
    if KINDS.index(kind.kind) <= KINDS.index(x.dtype.kind):
        kind = x.dtype
    return np.asarray(number, "float32" if kind.kind == "f" and x.dtype.kind != "f" else kind)


def binary(function, truth=False):
    def method(self, other):
        y = as_operand(self.array, other)
        if function is np.subtract and np.dtype(bool) in (self.dtype, y.dtype):
            raise TypeError("bools have no difference")
        dtype = promote(self.array, y)
        result = function(self.array.astype(dtype), y.astype(dtype))
        return Mirror(result if truth else result.astype(dtype))

    return method


def unary(function):
    return lambda self, *args, **options: Mirror(function(self.array, *args, **options))


def written(method):
    """The twin that writes what a method returns."""

    def write(self, *args, **options):
        result = method(self, *args, **options).array
        x = self.array
        if result.shape != x.shape or (result.dtype.kind == "f" and x.dtype.kind != "f"):
            raise TypeError("the result does not fit")
        if result.dtype.kind == "i" and x.dtype.kind == "b":
            raise TypeError("the result does not fit")
        return self.put(result)

    return write


def in_rows(kind, x):
    """A fresh result in row-major order."""
    return Mirror(x.array.copy(order="C")) if kind == "fresh" else x


def expand(x, *shape):
    added = len(shape) - x.ndim
    full = [x.shape[i - added] if n == -1 else n for i, n in enumerate(shape)]
    return np.broadcast_to(x, full)


def narrow(x, axis, start, length):
    slices = [slice(None)] * x.ndim
    slices[axis] = slice(start, start + length)
    return x[tuple(slices)]


def unfold(x, axis, size, step):
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis, writeable=True)
    slices = [slice(None)] * windows.ndim
    slices[axis] = slice(None, None, step)
    return windows[tuple(slices)]


def places(index, axis, shape):
    """Where `scatter` and `gather` look, as an index of all axes."""
    grid = list(np.indices(index.shape))
    grid[axis] = index
    return tuple(grid)


def leading_part(source, index):
    return source.array[tuple([slice(extent) for extent in index.shape])]


def entry(index):
    parts = index if isinstance(index, tuple) else (index,)
    return tuple([each.array if isinstance(each, Mirror) else each for each in parts])


def axis_index(axis, index):
    return (slice(None),) * axis + (index.array,)


def total(x, axis=None, keepdim=False):
    dtype = x.dtype if x.dtype.kind == "f" else np.int64
    return x.astype(np.float64).sum(axis, keepdims=keepdim).astype(dtype)


class Mirror:
    """An array and the methods that programs call; it has no gradients."""

    requires_grad = False

    def __init__(self, array):
        self.array = np.asarray(array)
        with contextlib.suppress(ValueError):
            self.array.flags.writeable = True  # also where the view repeats elements

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return self.array.dtype

    def requires_grad_(self):
        return self

    def put(self, values):
        strides = zip(self.array.strides, self.array.shape, strict=True)
        if self.array.size and any(stride == 0 and n > 1 for stride, n in strides):
            raise RuntimeError("elements share memory")
        np.copyto(self.array, np.array(values), casting="unsafe")
        return self

    # Views.
    transpose = unary(lambda x, a, b: x.swapaxes(a, b) if x.ndim else x[...])
    permute = unary(lambda x, *order: x.transpose(order))
    reshape = unary(lambda x, *shape: x.reshape(*shape))
    view = unary(lambda x, *shape: np.reshape(x, shape, copy=False))
    unsqueeze = unary(np.expand_dims)
    squeeze = unary(lambda x, axis: x.squeeze(axis) if x.shape[axis] == 1 else x[...])
    expand = unary(expand)
    diagonal = unary(np.diagonal)
    narrow = unary(narrow)
    unfold = unary(unfold)
    movedim = unary(np.moveaxis)
    select = unary(lambda x, axis, index: x[(slice(None),) * axis + (index, ...)])
    detach = unary(lambda x: x[...])

    def flatten(self):
        return self if self.array.ndim == 1 else self.reshape(-1)

    def contiguous(self):
        return self if self.array.flags.c_contiguous else self.clone()

    def unbind(self, axis):
        return [self.select(axis, index) for index in range(self.shape[axis])]

    def split(self, size, axis):
        begins = range(0, self.shape[axis], size)
        return [self.narrow(axis, begin, size) for begin in begins]

    def chunk(self, count, axis):
        return self.split(-(-self.shape[axis] // count), axis)

    def __getitem__(self, index):
        parts = entry(index)
        if not any(isinstance(each, (list, np.ndarray)) or each is ... for each in parts):
            parts = (*parts, ...)  # else one element is no view
        return Mirror(self.array[parts])

    # Fresh results.
    add = __add__ = __radd__ = binary(np.add)
    sub = __sub__ = binary(np.subtract)
    mul = __mul__ = __rmul__ = binary(np.multiply)
    maximum, minimum = binary(np.maximum), binary(np.minimum)
    remainder = __mod__ = binary(np.remainder)
    gt = __gt__ = binary(np.greater, truth=True)
    eq = binary(np.equal, truth=True)
    neg = __neg__ = unary(np.negative)
    abs = unary(np.abs)
    relu = unary(lambda x: np.where(x < 0, 0, x).astype(x.dtype))
    clamp = unary(np.clip)
    clone = unary(np.copy)
    flip = unary(lambda x, *axes: np.flip(x, axes).copy())
    roll = unary(np.roll)
    sum = unary(total)
    amax = unary(lambda x, axis, keepdim=False: x.max(axis, keepdims=keepdim))
    cumsum = unary(lambda x, axis: np.cumsum(x, axis, x.dtype if x.dtype.kind == "f" else None))
    tril = unary(lambda x, offset=0: np.tril(x, offset).astype(x.dtype))

    def to(self, dtype):
        return self if self.dtype == dtype else Mirror(self.array.astype(dtype))

    def where(self, condition, other):
        y = as_operand(self.array, other)
        dtype = promote(self.array, y)
        return Mirror(np.where(condition.array, self.array, y).astype(dtype))

    def masked_fill(self, mask, value):
        return Mirror(np.where(mask.array, np.asarray(value, self.dtype), self.array))

    def __matmul__(self, other):
        return Mirror((self.array @ other.array).astype(self.dtype))

    def index_select(self, axis, index):
        return Mirror(self.array[axis_index(axis, index)])

    def gather(self, axis, index):
        return Mirror(self.array[places(index.array, axis, self.shape)])

    def sort(self, stable, dim):
        return Mirror(
            np.sort(self.array, dim, kind="stable") if self.shape else self.array + 0
        ), None

    # Writes.
    add_, sub_, mul_ = written(add), written(sub), written(mul)
    __iadd__, __isub__, __imul__ = add_, sub_, mul_
    remainder_, neg_, abs_, relu_ = written(remainder), written(neg), written(abs), written(relu)
    clamp_, masked_fill_, tril_ = written(clamp), written(masked_fill), written(tril)
    cumsum_, gt_ = written(cumsum), written(gt)

    def fill_(self, value):
        self.array[...] = np.asarray(value, self.dtype)
        return self

    def zero_(self):
        return self.fill_(0)

    def copy_(self, source):
        return self.put(np.broadcast_to(source.array, self.shape))

    def __setitem__(self, index, value):
        values = value.array if isinstance(value, Mirror) else np.asarray(value)
        parts = entry(index)
        if not any(isinstance(each, (list, np.ndarray)) for each in parts):
            target = self[index]
            while values.ndim > target.array.ndim and values.shape[0] == 1:
                values = values[0]
            target.put(np.broadcast_to(values, target.shape))
        else:
            if isinstance(value, Mirror) and value.dtype != self.dtype:
                raise TypeError("dtypes differ")
            self.put(self.array).array[parts] = values.astype(self.dtype)

    def index_put_(self, indices, values, accumulate=False):
        if not accumulate:
            self[tuple(indices)] = values
            return self
        np.add.at(self.put(self.array).array, entry(tuple(indices)), values.array)
        return self

    def index_fill_(self, axis, index, value):
        self.put(self.array).array[axis_index(axis, index)] = value
        return self

    def index_copy_(self, axis, index, source):
        self.put(self.array).array[axis_index(axis, index)] = source.array
        return self

    def index_add_(self, axis, index, source):
        np.add.at(self.put(self.array).array, axis_index(axis, index), source.array)
        return self

    def scatter_(self, axis, index, value):
        where = places(index.array, axis, self.shape)
        values = leading_part(value, index) if isinstance(value, Mirror) else value
        self.put(self.array).array[where] = values
        return self

    def scatter_add_(self, axis, index, source):
        where = places(index.array, axis, self.shape)
        np.add.at(self.put(self.array).array, where, leading_part(source, index))
        return self

    def masked_scatter_(self, mask, source):
        chosen = np.broadcast_to(mask.array, self.shape)
        self.put(self.array).array[chosen] = source.array.reshape(-1)[: chosen.sum()]
        return self

    def see(self, view):
        self.array = view.array
        return self

    def transpose_(self, a, b):
        return self.see(self.transpose(a, b))

    def squeeze_(self, axis):
        return self.see(self.squeeze(axis))

    def unsqueeze_(self, axis):
        return self.see(self.unsqueeze(axis))


class Package:
    """What programs call besides methods."""

    no_grad = staticmethod(contextlib.nullcontext)
    arange = staticmethod(lambda count: Mirror(np.arange(count)))
    tensor = staticmethod(lambda values: Mirror(np.array(values)))

    @staticmethod
    def cat(tensors, axis):
        dtype = np.result_type(*[each.dtype for each in tensors])
        return Mirror(np.concatenate([each.array for each in tensors], axis).astype(dtype))

    @staticmethod
    def stack(tensors, axis):
        return Mirror(np.stack([each.array for each in tensors], axis))


for name in NAMES:
    setattr(Package, name, np.dtype(name))
