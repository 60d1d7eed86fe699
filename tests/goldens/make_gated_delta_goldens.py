"""Compute ``data/gated_delta_net.npz`` with transformers' blocks: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_gated_delta_goldens

Each block gets random weights and runs over one input at once without a cache, and in pieces with one: chunked prefill
and decode.
"""

import sys
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, Qwen3_5TextConfig, Qwen3NextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from tests.goldens.gated_delta_sizes import BATCH, CASES, PIECES, GatedDeltaSizes
from tests.goldens.golden_files import DATA

_BLOCKS = {True: (Qwen3NextGatedDeltaNet, Qwen3NextConfig), False: (Qwen3_5GatedDeltaNet, Qwen3_5TextConfig)}


def main() -> int:
    """Make the file."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    arrays: dict[str, np.ndarray] = {}
    for name, sizes in CASES.items():
        for field, array in _arrays(sizes).items():
            arrays[f"{name}.{field}"] = array
    np.savez_compressed(DATA / "gated_delta_net.npz", **arrays)
    return 0


def _arrays(sizes: GatedDeltaSizes) -> dict[str, np.ndarray]:
    """The fields of ``golden_files.GatedDeltaGolden``."""
    block, config = _block(sizes)
    x = torch.randn(BATCH, sum(PIECES), sizes.size)
    whole = block(x)
    cache, at, pieces = DynamicCache(config=config), 0, []
    for count in PIECES:
        pieces.append(block(x[:, at : at + count], cache_params=cache))
        at += count
    in_pieces = torch.cat(pieces, 1)
    torch.testing.assert_close(in_pieces, whole, rtol=1e-4, atol=1e-5)
    arrays = {"x": x, "whole": whole, "pieces": in_pieces}
    arrays["conv"] = cache.layers[0].conv_states[0].transpose(1, 2)[:, 1:]  # transformers keeps W inputs, we W - 1
    arrays["delta"] = cache.layers[0].recurrent_states[0]
    arrays |= {f"weights.{key}": tensor for key, tensor in block.state_dict().items()}
    return {key: tensor.numpy().copy() for key, tensor in arrays.items()}


def _block(sizes: GatedDeltaSizes) -> tuple[Any, Any]:
    torch.manual_seed(sizes.seed)
    kind, of_config = _BLOCKS[sizes.grouped]
    config = of_config(
        hidden_size=sizes.size,
        num_hidden_layers=1,
        linear_num_key_heads=sizes.key_heads,
        linear_num_value_heads=sizes.value_heads,
        linear_key_head_dim=sizes.key_size,
        linear_value_head_dim=sizes.value_size,
        linear_conv_kernel_dim=sizes.taps,
        layer_types=["linear_attention"],
        rms_norm_eps=sizes.norm_eps,
    )
    block = kind(config, 0).eval()
    for key, weight in block.named_parameters():
        drawn = torch.randn(weight.shape)
        weight.copy_(1 + drawn / 4 if key == "norm.weight" else drawn / 2)
    return block, config


if __name__ == "__main__":
    sys.exit(main())
