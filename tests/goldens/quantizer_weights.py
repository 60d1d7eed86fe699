"""Weights that quantizers are compared on, and errors of rows."""

import numpy as np

ENCODINGS = (
    "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0",
)  # fmt: skip
KINDS = ("normal", "heavy", "shifted")


def drawn_weights(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns weights f32 [24, 1280] of a distribution, and the importance of the columns."""
    rng = np.random.default_rng(KINDS.index(kind))
    shape = (24, 1280)
    drawn = {
        "normal": lambda: rng.standard_normal(shape) * 0.03,
        "heavy": lambda: rng.standard_t(4, shape) * 0.02,
        "shifted": lambda: rng.standard_normal(shape) * 0.02 + 0.01,
    }[kind]()
    return drawn.astype(np.float32), (rng.gamma(0.5, size=shape[1]) + 1e-3).astype(np.float32)


def row_errors(weights: np.ndarray, restored: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    """Returns squared errors of rows, weighed by importance, f64 [rows]."""
    squares = (restored.astype(np.float64) - weights) ** 2
    return (squares if importance is None else squares * importance).sum(axis=1)
