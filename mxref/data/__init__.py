"""The real tensors shipped with the package, with their provenance.

``digits.npz`` holds one hidden layer of a small classifier trained on scikit-learn's handwritten
digits, and what reaches that layer for 64 held-out digits; ``digits.json`` says how it was made and
``regenerate.py`` makes it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np


@dataclass(frozen=True)
class Digits:
    """A layer, what enters it, and what follows it.

    Every array is float32 whose values bfloat16 holds exactly, so a cast to bfloat16 is lossless.

    Attributes:
      activations: float32[64, 640], outputs of the previous layer for 64 held-out digits.
      weights: float32[640, 96], the layer.
      bias: float32[96], the layer's bias.
      head: float32[96, 10], the classifier after the layer's ReLU.
      head_bias: float32[10], the classifier's bias.
      labels: uint8[64], the true digits.
    """

    activations: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    head: np.ndarray
    head_bias: np.ndarray
    labels: np.ndarray

    def correct(self, product: np.ndarray) -> int:
        """Count the digits read right when the layer's product is ``product``.

        Args:
          product: float[64, 96], ``activations @ weights`` in whatever arithmetic is on trial.
        """
        hidden = np.maximum(np.asarray(product, np.float64) + self.bias, 0)
        return int(((hidden @ self.head + self.head_bias).argmax(1) == self.labels).sum())


@cache
def digits() -> Digits:
    """Load the shipped layer and its inputs."""
    with (
        files(__name__).joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        return Digits(**arrays)
