"""Here lives Digits: small images of handwritten digits, as patches, for a small vision transformer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from normula.data.base import Specified
from normula.data.batch import Batch, Ids, unigram_loss

IMAGES_HELD = 360
"""A fifth of the 1797 images, for validation."""

SIDE, PATCH, CLASSES = 8, 2, 10

Patches = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Digits(Specified):
    """The 1797 images of 8 x 8 that scikit-learn ships, as 16 patches of 2 x 2: which digit is it?

    The images are from Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998. Values have mean 0
    and deviation 1 over the images that are trained on. The split is one fixed random draw.
    """

    name: str = field(default="digits", init=False)
    vocab: int | None = field(default=None, init=False)
    context: int = field(default=(SIDE // PATCH) ** 2, init=False)
    causal: bool = field(default=False, init=False)

    @property
    def features(self) -> int:
        """P, values of a patch."""
        return PATCH * PATCH

    @property
    def classes(self) -> int:
        """Ten digits."""
        return CLASSES

    @property
    def stuck_loss(self) -> float:
        return unigram_loss(_images()[1][IMAGES_HELD:], self.validation().targets, CLASSES)

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"".join(array.tobytes() for array in _images())).hexdigest()[:16]

    def batches(self, seed: int, size: int, first: int = 0) -> Iterator[Batch]:
        """Training batches without end: random images, each as likely as any other every time."""
        patches, labels = _images()
        random = np.random.default_rng([seed, 1])
        for _ in range(first):
            random.integers(IMAGES_HELD, len(labels), size)
        while True:
            chosen = random.integers(IMAGES_HELD, len(labels), size)
            yield Batch(patches[chosen], labels[chosen])

    def validation(self, size: int = IMAGES_HELD) -> Batch:
        """The first of the images that are never trained on.

        Raises:
            ValueError: there are not as many.
        """
        if size > IMAGES_HELD:
            raise ValueError(f"digits has {IMAGES_HELD} images for validation, not {size}")
        patches, labels = _images()
        return Batch(patches[:size], labels[:size])


@cache
def _images() -> tuple[Patches, Ids]:
    """Patches (1797, 16, 4) and labels (1797,), in random order; the first are for validation."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "the images of the task digits come with scikit-learn; install it with: pip install 'normula[race]'"
        ) from None
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pixels, labels = pixels[order], labels[order].astype(np.int64)
    seen = pixels[IMAGES_HELD:]
    return patches((pixels - seen.mean()) / seen.std()), labels


def patches(pixels: NDArray[np.float64]) -> Patches:
    """Images (N, 64), row by row, as patches (N, 16, 4), row by row too."""
    n = SIDE // PATCH
    cut = pixels.reshape(-1, n, PATCH, n, PATCH).swapaxes(2, 3)
    return cut.reshape(-1, n * n, PATCH * PATCH).astype(np.float32)
