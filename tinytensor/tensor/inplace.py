"""Turns methods that return a result into twins that write it to their tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinytensor.errors import GradientError
from tinytensor.tensor.arranging import Arranging
from tinytensor.tensor.axes import Dims
from tinytensor.tensor.base import TensorBase

Twin = Callable[..., Any]  # takes what its method takes, and returns its tensor


def twin(name: str) -> Twin:
    """Return the method that writes to its tensor what the method of a name returns."""

    def write(self: TensorBase, *args: Any, **options: Any) -> TensorBase:  # noqa: ANN401 - as the method
        return self._replace(written, getattr(self, name)(*args, **options))

    written = write.__name__ = write.__qualname__ = f"{name}_"
    write.__doc__ = f"Write to this tensor what `{name}` returns."
    return write


def twins(names: str) -> list[Twin]:
    """Return the twins of several methods."""
    return [twin(name) for name in names.split()]


class Inplace(Arranging):
    """Methods that change their tensor, and with it every view of the same memory.

    A twin that other methods need is a name more in one of these lines.
    """

    __slots__ = ()

    add_, sub_, mul_, multiply_ = twins("add sub mul multiply")
    div_, true_divide_, floor_divide_ = twins("div true_divide floor_divide")
    remainder_, fmod_, pow_ = twins("remainder fmod pow")
    neg_, abs_, sign_, square_ = twins("neg abs sign square")
    sqrt_, rsqrt_, reciprocal_ = twins("sqrt rsqrt reciprocal")
    exp_, exp2_, expm1_ = twins("exp exp2 expm1")
    log_, log2_, log10_, log1p_ = twins("log log2 log10 log1p")
    sin_, cos_, tan_, asin_, acos_, atan_ = twins("sin cos tan asin acos atan")
    sinh_, cosh_, tanh_, erf_, atan2_ = twins("sinh cosh tanh erf atan2")
    sigmoid_, logit_, relu_ = twins("sigmoid logit relu")
    round_, floor_, ceil_, trunc_, frac_ = twins("round floor ceil trunc frac")
    clamp_, clamp_min_, clamp_max_, clip_ = twins("clamp clamp_min clamp_max clip")
    lerp_, addcmul_, addcdiv_ = twins("lerp addcmul addcdiv")
    addmm_, baddbmm_ = twins("addmm baddbmm")
    copysign_, nan_to_num_ = twins("copysign nan_to_num")
    deg2rad_, rad2deg_ = twins("deg2rad rad2deg")
    eq_, ne_, lt_, le_, gt_, ge_ = twins("eq ne lt le gt ge")
    bitwise_and_, bitwise_or_, bitwise_xor_ = twins("bitwise_and bitwise_or bitwise_xor")
    bitwise_not_, bitwise_left_shift_ = twins("bitwise_not bitwise_left_shift")
    bitwise_right_shift_, logical_not_ = twins("bitwise_right_shift logical_not")
    logical_and_, logical_or_, logical_xor_ = twins("logical_and logical_or logical_xor")
    scatter_, scatter_add_, scatter_reduce_ = twins("scatter scatter_add scatter_reduce")
    index_add_, index_copy_, index_fill_ = twins("index_add index_copy index_fill")
    index_put_, put_ = twins("index_put put")
    masked_fill_, masked_scatter_ = twins("masked_fill masked_scatter")
    tril_, triu_, cumsum_, cumprod_ = twins("tril triu cumsum cumprod")

    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_
    __ifloordiv__, __imod__, __ipow__ = floor_divide_, remainder_, pow_
    __iand__, __ior__, __ixor__ = bitwise_and_, bitwise_or_, bitwise_xor_
    __ilshift__, __irshift__ = bitwise_left_shift_, bitwise_right_shift_

    def t_(self) -> Self:
        """Transpose a matrix in place: this tensor sees its memory so from now on."""
        return self._see_as("t_", self.t())

    def transpose_(self, dim0: int, dim1: int) -> Self:
        """Exchange two axes in place."""
        return self._see_as("transpose_", self.transpose(dim0, dim1))

    swapaxes_ = transpose_

    def squeeze_(self, dim: Dims = None) -> Self:
        """Take away axes of extent 1 in place."""
        return self._see_as("squeeze_", self.squeeze(dim))

    def unsqueeze_(self, dim: int) -> Self:
        """Insert an axis of extent 1 in place."""
        return self._see_as("unsqueeze_", self.unsqueeze(dim))

    def _see_as(self, who: str, seen: TensorBase) -> Self:
        """Take over the view of another tensor of this cell; what gradients do there stays."""
        if self._mark > 0:
            sentence = f"{who}: a leaf that requires a gradient changes shape: {self.shape}"
            raise GradientError(f"{sentence}; it must not be one. Use the method without _.")
        self._look(seen._layout().marked(self._mark))
        return self
