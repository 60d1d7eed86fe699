"""Compute goldens of multi-token prediction heads: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_mtp_goldens [--only NAME ...]

transformers has no class for them. The head is written down here from the paper (arXiv:2412.19437, section 2.2): for
token i + 1 the normed embedding is joined with the normed hidden state of token i, which is the model's after its
final norm, projected, run through a layer of the model's kind, normed, and given to the model's output projection:
logits of token i + 2. The layer is transformers' own class, over the tokens from the second on.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from transformers import AutoModelForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3RMSNorm
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeRMSNorm
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNorm
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNorm

from tests.goldens._case_types import GoldenCase
from tests.goldens.golden_files import read_golden
from tests.goldens.mtp_cases import MTP_CASES, golden_path, layer_config, mtp_case, mtp_weights, stored_key
from tests.goldens.weights import write_checkpoint

_NORMS = {
    "qwen3_next": Qwen3NextRMSNorm,
    "qwen3_5_text": Qwen3_5RMSNorm,
    "deepseek_v3": DeepseekV3RMSNorm,
    "glm4_moe": Glm4MoeRMSNorm,
}
_FURTHER = 3


class _Head:
    def __init__(self, case: GoldenCase, model: Any, directory: Path) -> None:
        self.model, self.weights = model, {key: torch.from_numpy(array) for key, array in mtp_weights(case).items()}
        self.config, self.values = case.config, layer_config(case.config)
        self.norm_class = _NORMS[case.config["model_type"]]
        self.layer = self._layer(directory)

    def _layer(self, directory: Path) -> Any:
        """Loads the layer as that of a model that has no other, for transformers to join its experts."""
        one = GoldenCase(name="one", twist="", config=self.values, form="5.x", seed=1, prompt=((0,),))
        write_checkpoint(directory, one)
        path = directory / "model.safetensors"
        tensors = safetensors.numpy.load_file(path)
        above = "mtp.layers.0."
        for key in list(tensors):
            if key.startswith("model.layers.0."):
                stored = stored_key(above + key.removeprefix("model.layers.0."), self.config)
                tensors[key] = self.weights[stored].numpy()
        safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
        loaded = AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
        )
        return loaded.model.layers[0].eval()

    def _normed(self, name: str, x: torch.Tensor) -> torch.Tensor:
        norm = self.norm_class(x.shape[-1], eps=self.config["rms_norm_eps"])
        norm.weight.data = self.weights[stored_key(f"mtp.{name}.weight", self.config)]
        return norm(x)

    def __call__(self, tokens: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [1, n] from the second on, hidden states [1, n, D] of those before: logits and the head's results."""
        embedded = self.model.model.embed_tokens(tokens)
        joined = torch.cat(
            [self._normed("pre_fc_norm_embedding", embedded), self._normed("pre_fc_norm_hidden", hidden)], -1
        )
        x = joined @ self.weights[stored_key("mtp.fc.weight", self.config)].T
        count = tokens.shape[1]
        positions = torch.arange(count)[None]
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        cos_sin = self.model.model.rotary_emb(x, positions)
        x = self.layer(x, position_embeddings=cos_sin, attention_mask=mask, position_ids=positions)
        x = x[0] if isinstance(x, tuple) else x
        result = self._normed("norm", x)
        return self.model.lm_head(result), result


def _arrays(name: str) -> dict[str, np.ndarray]:
    case, golden = mtp_case(name), read_golden(name)
    tokens = torch.from_numpy(np.concatenate([golden.prompt[:1], golden.tokens[:1]], 1).astype(np.int64))
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        write_checkpoint(Path(first), case)
        model = AutoModelForCausalLM.from_pretrained(
            first, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
        ).eval()
        head = _Head(case, model, Path(second))
    hidden = model.model(tokens, use_cache=False).last_hidden_state
    logits, _ = head(tokens[:, 1:], hidden[:, :-1])
    # The head's guesses after the whole text, each from its own result for the guess before.
    guesses, known, states = [], tokens[:, 1:], hidden[:, :-1]
    for _ in range(_FURTHER):
        all_logits, all_results = head(known, states)
        guesses.append(all_logits[:, -1].numpy())
        known = torch.cat([known, all_logits[:, -1:].argmax(-1)], 1)
        states = torch.cat([states, all_results[:, -1:]], 1)
    return {"tokens": tokens.numpy().astype(np.int32), "logits": logits.numpy(), "further": np.stack(guesses, 1)}


def main() -> None:
    """Writes the files."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for name in sys.argv[2:] if sys.argv[1:2] == ["--only"] else MTP_CASES:
        arrays = _arrays(name)
        np.savez_compressed(golden_path(name), **arrays)
        print(name, {key: array.shape for key, array in arrays.items()}, float(arrays["logits"].std()))


if __name__ == "__main__":
    main()
