"""Blocks of several streams of which there are goldens: sizes, weights, and what torch computed."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.goldens.golden_files import DATA
from tests.goldens.weights import unit_values

BATCH: Final = 2


@dataclass(frozen=True)
class JointBlockSizes:
    """The arguments of ``JointBlock``; ``lengths`` has the tokens of each stream; and the weights' seed."""

    size: int
    heads: int
    inner: int
    condition: int
    lengths: dict[str, int]
    ends: tuple[str, ...]
    qk_norm_eps: float | None
    seed: int


CASES: Final = {
    "two": JointBlockSizes(20, 4, 37, 11, {"img": 9, "txt": 5}, (), None, 1),
    "two_last": JointBlockSizes(24, 3, 41, 13, {"img": 6, "txt": 7}, ("txt",), 1e-3, 2),
    "three": JointBlockSizes(18, 3, 25, 7, {"img": 8, "txt": 3, "audio": 4}, (), 1e-6, 3),
}


@dataclass(frozen=True)
class JointBlockGolden:
    """Results of torch for ``CASES[name]``, in f32.

    Attributes:
        x: ``[B, T, D]`` by stream.
        condition: ``[B, C]``.
        y: ``[B, T, D]`` by stream.
    """

    x: dict[str, np.ndarray]
    condition: np.ndarray
    y: dict[str, np.ndarray]


def read_joint_block_golden(name: str) -> JointBlockGolden:
    """The golden arrays of the block called ``name``."""
    with np.load(DATA / "joint_block.npz", allow_pickle=False) as file:
        streams = CASES[name].lengths
        x, y = ({stream: file[f"{name}.{letter}.{stream}"] for stream in streams} for letter in "xy")
        return JointBlockGolden(x, file[f"{name}.condition"], y)


def joint_block_weights(sizes: JointBlockSizes) -> dict[str, np.ndarray]:
    """Random weights, f32, by stream and module."""
    d, f = sizes.size, sizes.inner
    made: dict[str, np.ndarray] = {}
    for name in sizes.lengths:
        ends = name in sizes.ends
        shapes = {"modulation.linear": ((2 if ends else 6) * d, sizes.condition)}
        shapes |= {f"{part}_proj": (d, d) for part in "qkv"}
        if not ends:
            shapes |= {"o_proj": (d, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f)}
        for module, shape in shapes.items():
            weight, bias = f"{name}.{module}.weight", f"{name}.{module}.bias"
            made[weight] = unit_values(weight, shape, sizes.seed) * np.float32(np.sqrt(3 / shape[1]))
            made[bias] = unit_values(bias, shape[:1], sizes.seed) * np.float32(0.5)
        for part in "qk" if sizes.qk_norm_eps is not None else "":
            key = f"{name}.{part}_norm.weight"
            made[key] = 1 + unit_values(key, (d // sizes.heads,), sizes.seed) * np.float32(0.25)
    return made
