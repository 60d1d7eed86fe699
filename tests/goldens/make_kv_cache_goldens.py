"""Compute goldens of quantized KV caches: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_kv_cache_goldens

The model is transformers' own, with a cache of its own whose new keys and values go through the gguf package first:
quantized in blocks along a head, and dequantized.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, quants
from transformers import AutoModelForCausalLM, DynamicCache

from tests.goldens._case_types import GoldenCase
from tests.goldens.kv_cache_cases import KV_CACHE_CASES, KV_CACHE_ENCODINGS, kv_cache_path
from tests.goldens.weights import write_checkpoint


class _RoundedCache(DynamicCache):
    """Cache of transformers whose entries are rounded as they are appended."""

    kind: GGMLQuantizationType

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Appends rounded keys and values."""
        return super().update(self._rounded(key_states), self._rounded(value_states), layer_idx, *args, **kwargs)

    def _rounded(self, entries: torch.Tensor) -> torch.Tensor:
        array = np.ascontiguousarray(entries.numpy())
        return torch.from_numpy(quants.dequantize(quants.quantize(array, self.kind), self.kind))


def main() -> None:
    """Writes the files."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    for case in KV_CACHE_CASES:
        with tempfile.TemporaryDirectory() as name:
            write_checkpoint(Path(name), case)
            model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, attn_implementation="eager").eval()
        plain = _arrays(case, model, DynamicCache(config=model.config))
        for encoding in KV_CACHE_ENCODINGS:
            cache = _RoundedCache(config=model.config)
            cache.kind = GGMLQuantizationType[encoding.upper()]
            arrays = _arrays(case, model, cache)
            moved = np.abs(arrays["logits"] - plain["logits"]).max() / np.abs(plain["logits"]).max()
            if not moved > 1e-3:
                raise RuntimeError(f"{case.name}, {encoding}: rounding moves the logits by {moved}, too little to see")
            np.savez_compressed(kv_cache_path(case, encoding), **arrays)
            print(f"{case.name} {encoding}: logits moved by {moved:.2g}; tokens {arrays['tokens'].tolist()}")


def _arrays(case: GoldenCase, model: Any, cache: Any) -> dict[str, np.ndarray]:
    ids = prompt = torch.tensor(case.prompt)
    tokens, logits = [], []
    for _ in range(case.steps):
        step = model(ids, past_key_values=cache, use_cache=True).logits[:, -1]
        ids = step.argmax(-1, keepdim=True)
        logits.append(step.numpy())
        tokens.append(ids[:, 0].numpy())
    return {"prompt": prompt.numpy(), "tokens": np.stack(tokens, 1), "logits": np.stack(logits, 1)}


if __name__ == "__main__":
    main()
