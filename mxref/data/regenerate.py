"""Train the classifier again and write ``digits.npz`` and ``digits.json`` beside this file.

Run it as ``python -m mxref.data.regenerate``.  It needs
scikit-learn (the ``dev`` extra).  The result is deterministic on one machine; another BLAS
may move last bits, which is why the trained tensors are shipped and not retrained.
"""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path

import ml_dtypes
import numpy as np

SEED = 0
SAMPLES = 64
HIDDEN = (640, 96)
EPOCHS = 60


def train() -> tuple[dict[str, np.ndarray], float]:
    """Return the shipped arrays and the classifier's float64 accuracy on its held-out part."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images / 16.0, labels, test_size=0.25, random_state=SEED
    )
    net = MLPClassifier(HIDDEN, max_iter=EPOCHS, random_state=SEED, alpha=1e-3, tol=0.0)
    net.n_iter_no_change = EPOCHS  # always the full number of epochs
    net.fit(train_x, train_y)
    weights = [np.asarray(a, np.float64) for a in net.coefs_]
    biases = [np.asarray(a, np.float64) for a in net.intercepts_]
    arrays = {
        "activations": np.maximum(test_x[:SAMPLES] @ weights[0] + biases[0], 0),
        "weights": weights[1],
        "bias": biases[1],
        "head": weights[2],
        "head_bias": biases[2],
    }
    # Through float32: numpy's float64 -> bfloat16 cast rounds twice.
    rounded = {
        name: a.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
        for name, a in arrays.items()
    }
    rounded["labels"] = np.asarray(test_y)[:SAMPLES].astype(np.uint8)
    return rounded, float(net.score(test_x, test_y))


def main() -> None:
    """Write the two files."""
    arrays, accuracy = train()
    here = Path(__file__).parent
    np.savez_compressed(here / "digits.npz", allow_pickle=False, **arrays)
    data = (here / "digits.npz").read_bytes()
    provenance = {
        "file": "digits.npz",
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "dataset": {
            "name": "Optical Recognition of Handwritten Digits (test part), "
            "as sklearn.datasets.load_digits",
            "authors": "E. Alpaydin, C. Kaynak; UCI Machine Learning Repository, 1998",
            "url": "https://archive.ics.uci.edu/dataset/80",
            "licence": "CC BY 4.0",
            "shipped": "no image is shipped, only activations computed from 64 of them",
        },
        "model": {
            "kind": "sklearn.neural_network.MLPClassifier, ReLU, Adam",
            "layers": "-".join(map(str, (64, *HIDDEN, 10))),
            "epochs": EPOCHS,
            "seed": SEED,
            "held_out_accuracy": round(accuracy, 4),
        },
        "rounding": "all but the labels rounded to bfloat16 (nearest even), kept as float32",
        "arrays": {name: f"{a.dtype}{list(a.shape)}" for name, a in arrays.items()},
        "made_with": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scikit-learn")},
        },
        "script": "python -m mxref.data.regenerate",
    }
    (here / "digits.json").write_text(json.dumps(provenance, indent=2) + "\n")


if __name__ == "__main__":
    main()
