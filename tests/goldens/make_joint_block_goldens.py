"""Compute ``data/joint_block.npz`` with torch: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_joint_block_goldens

The block is Figure 2b of Esser et al. 2024, arXiv:2403.03206 (Stable Diffusion 3), written here in torch's own
functions (layer_norm, rms_norm, scaled_dot_product_attention, gelu), for any number of streams: each is normed without
weights, scaled and shifted, projected; attention runs over the tokens of all; each stream goes on with its part, gated.
"""

import sys

import numpy as np
import torch
from torch.nn import functional

from tests.goldens.golden_files import DATA
from tests.goldens.joint_block import BATCH, CASES, JointBlockSizes, joint_block_weights

_EPS = 1e-6
Tensors = dict[str, torch.Tensor]


def main() -> int:
    """Make the file."""
    torch.set_num_threads(1)
    arrays: dict[str, np.ndarray] = {"torch": np.array(torch.__version__)}
    for name, sizes in CASES.items():
        torch.manual_seed(sizes.seed)
        weights = {key: torch.from_numpy(array) for key, array in joint_block_weights(sizes).items()}
        streams = {stream: torch.randn(BATCH, length, sizes.size) for stream, length in sizes.lengths.items()}
        condition = torch.randn(BATCH, sizes.condition)
        results = _block(sizes, weights, streams, condition)
        tensors = {f"x.{key}": value for key, value in streams.items()} | {"condition": condition}
        tensors |= {f"y.{key}": value for key, value in results.items()}
        arrays |= {f"{name}.{key}": value.numpy() for key, value in tensors.items()}
    np.savez_compressed(DATA / "joint_block.npz", **arrays)
    return 0


def _block(sizes: JointBlockSizes, weights: Tensors, streams: Tensors, condition: torch.Tensor) -> Tensors:
    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def modulate(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (sizes.size,), eps=_EPS) * (1 + scale[:, None]) + shift[:, None]

    def heads(name: str, part: str, x: torch.Tensor) -> torch.Tensor:
        split = linear(f"{name}.{part}_proj", x).unflatten(-1, (sizes.heads, -1)).transpose(1, 2)
        if part == "v" or sizes.qk_norm_eps is None:
            return split
        norm = weights[f"{name}.{part}_norm.weight"]
        return functional.rms_norm(split, norm.shape, norm, sizes.qk_norm_eps)

    parts = {
        name: linear(f"{name}.modulation.linear", functional.silu(condition)).split(sizes.size, -1) for name in streams
    }
    normed = {name: modulate(x, *parts[name][:2]) for name, x in streams.items()}
    q, k, v = (torch.cat([heads(name, part, x) for name, x in normed.items()], 2) for part in "qkv")
    seen = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    results: Tensors = {}
    for (name, x), mine in zip(streams.items(), seen.split(list(sizes.lengths.values()), 1), strict=True):
        if name in sizes.ends:
            results[name] = x
            continue
        _, _, gate, shift, scale, mlp_gate = parts[name]
        y = x + gate[:, None] * linear(f"{name}.o_proj", mine)
        inner = functional.gelu(linear(f"{name}.mlp.up_proj", modulate(y, shift, scale)), approximate="tanh")
        results[name] = y + mlp_gate[:, None] * linear(f"{name}.mlp.down_proj", inner)
    return results


if __name__ == "__main__":
    sys.exit(main())
