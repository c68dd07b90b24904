"""The gradients of windows that slide are their transpose, and one contraction each."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, autograd, dtypes
from tinytensor.nn import functional
from tinytensor.tensor.correlation import Slide, correlate

SLIDES = {
    "plain": [Slide(), Slide()],
    "borders that differ": [Slide(before=2, after=1), Slide(after=3)],
    "borders that cut": [Slide(before=-1), Slide(before=1, after=-2)],
    "apart": [Slide(1, 2, 2, 0), Slide(1, 3, 1, 4)],
    "steps as long as the filters": [Slide(3, 1, 1, 0), Slide(2, 1, 0, 1)],
    "steps beyond the filters": [Slide(4, 1, 1, 0), Slide(5, 1, 2, 3)],
    "short steps": [Slide(2, 1, 3, 1), Slide(1, 2, 2, 1)],
    "steps of windows with gaps": [Slide(2, 2, 1, 1), Slide(2, 1, 1, 1)],
}


def whole(*shape):
    """Small whole numbers, whose sums are exact in every order."""
    return np.random.default_rng(3).integers(-3, 4, shape).astype(np.float32)


def correlated(x, filters, slides):
    """Add up one place of the filters at a time, in NumPy."""
    padded = x.astype(np.float64)
    for axis in (0, 1):
        before, after = slides[axis].before, slides[axis].after
        sides = [(0, 0)] * 5
        sides[3 + axis] = (max(before, 0), max(after, 0))
        end = padded.shape[3 + axis] - max(-after, 0)
        padded = np.pad(padded.take(range(max(-before, 0), end), 3 + axis), sides)
    total = 0.0
    for place in np.ndindex(*filters.shape[3:]):
        read = padded
        for axis in (0, 1):
            apart = slides[axis].dilation
            end = padded.shape[3 + axis] - apart * (filters.shape[3 + axis] - 1)
            firsts = np.arange(0, end, slides[axis].step)
            read = read.take(firsts + place[axis] * apart, 3 + axis)
        total = total + np.einsum("ngchw,gmc->ngmhw", read, filters[(..., *place)])
    return total


@pytest.fixture(params=SLIDES.values(), ids=SLIDES)
def slides(request):
    return request.param


def test_it_is_its_definition(slides):
    x, filters = whole(2, 2, 3, 7, 9), whole(2, 4, 3, 3, 2)

    value = correlate(Tensor(x, device="CPU").uop, Tensor(filters, device="CPU").uop, slides)

    np.testing.assert_array_equal(
        Tensor._made(value, "CPU").numpy(), correlated(x, filters, slides)
    )


def test_its_gradients_are_its_transpose(slides):
    """A sum that is linear in x tells the gradient at x by its values at the unit arrays."""
    x = Tensor(whole(1, 2, 2, 6, 5), device="CPU", requires_grad=True)
    filters = Tensor(whole(2, 3, 2, 3, 2), device="CPU", requires_grad=True)
    y = Tensor._made(correlate(x.uop, filters.uop, slides), "CPU")
    upstream = whole(*y.shape)

    found = autograd.grad(y, [x, filters], Tensor(upstream, device="CPU"))

    for number, given in enumerate((x, filters)):
        arrays = [x.detach().numpy(), filters.detach().numpy()]
        expected = np.zeros(given.shape)
        for place in np.ndindex(*given.shape):
            arrays[number] = np.zeros(given.shape)
            arrays[number][place] = 1.0
            expected[place] = np.sum(correlated(*arrays, slides) * upstream)
        np.testing.assert_array_equal(found[number].numpy(), expected)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=lambda each: each.name)
def test_each_gradient_is_one_contraction_of_what_was_given(dtype):
    x, weight, upstream = [
        Tensor(whole(*shape), device="CPU", dtype=dtype).realize()
        for shape in ((2, 8, 8, 8), (4, 8, 3, 3), (2, 4, 8, 6))
    ]
    for each in (x, weight):
        each.requires_grad = True
    y = functional.conv2d(x, weight, padding=1, dilation=(1, 2))

    found = autograd.grad(y, [x, weight], upstream)

    for gradient in found:
        (kernel,) = kernels_of(gradient)
        assert kernel.contraction is not None
        assert {each.dtype for each in kernel.params if not each.written} == {dtype}
