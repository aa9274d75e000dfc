"""Here lives the check of a pullback: central differences along random directions.

With u a direction in an argument a, h a small step, and dy a gradient at the output,

    <dy, f(a + h u) - f(a - h u)> / 2h  =  <pullback(dy), u> + O(h^2).
"""

from collections.abc import Callable, Sequence

import numpy as np

from normula.oracle.norms import Array, Pullback

# Of the step h, the truncation is of order h^2 and the rounding of order 2^-53 / h; this h makes them alike, 4e-11.
STEP = float(np.finfo(np.float64).eps) ** (1 / 3)
DIRECTIONS = 8  # enough that not all of them can lie almost across a gradient
SMALLEST = 1e-3  # of ||dy|| ||f||; the rounding of the differences is 1e-10 of it


def check_pullback(function: Callable[..., tuple[Array, Pullback]], arrays: Sequence[Array], seed: int) -> float:
    """The relative error of the pullback against differences: the worst over the arguments.

    Each argument is moved alone, so a small gradient that is wrong cannot hide behind a large one that is right. Its
    error is the root mean square over the directions of the difference between the two sides, relative to that of the
    larger side. A gradient that is zero by an identity (attention's key biases: the softmax does not see them) has no
    size to relate to; so the size is taken as at least 1e-3 of ||dy|| ||f||, above the rounding of the differences.

    `function(*arrays)` returns (value, pullback), and `pullback(dy)` as many gradients as there are arrays.

    >>> square = lambda x: (x**2, lambda dy: (2 * x * dy,))
    >>> check_pullback(square, [np.array([1.0, 3.0])], seed=0) < 1e-8
    True
    >>> wrong = lambda x: (x**2, lambda dy: (x * dy,))
    >>> round(check_pullback(wrong, [np.array([1.0, 3.0])], seed=0), 3)
    0.5
    """
    random = np.random.default_rng(seed)
    value, pullback = function(*arrays)
    dy = random.standard_normal(value.shape)
    gradients = pullback(dy)
    assert len(gradients) == len(arrays), f"{len(gradients)} gradients for {len(arrays)} arguments"
    floor = SMALLEST * float(np.linalg.norm(dy) * np.linalg.norm(value))

    def moved(index: int, step: Array) -> Array:
        # asarray, because NumPy makes a scalar of an array of shape () in any arithmetic.
        return function(*arrays[:index], np.asarray(arrays[index] + step), *arrays[index + 1 :])[0]

    worst = 0.0
    for index, (array, gradient) in enumerate(zip(arrays, gradients, strict=True)):
        assert gradient.shape == array.shape, f"argument {index} is {array.shape}, its gradient {gradient.shape}"
        directions = [random.standard_normal(array.shape) for _ in range(DIRECTIONS)]
        steps = [moved(index, np.asarray(STEP * u)) - moved(index, np.asarray(-STEP * u)) for u in directions]
        measured = np.array([np.sum(dy * step) / (2 * STEP) for step in steps])
        claimed = np.array([np.sum(gradient * u) for u in directions])
        size = max(_rms(measured), _rms(claimed), floor)
        worst = max(worst, _rms(measured - claimed) / size)
    return worst


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(x**2)))
