"""Multi-token prediction heads of golden cases: their weights, and the files of goldens."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.goldens._case_types import Config, GoldenCase
from tests.goldens._shapes import weight_shapes
from tests.goldens.cases import CASES
from tests.goldens.weights import random_tensor, stored_weights

MTP_CASES: Final = ("qwen3_next", "qwen3_5", "deepseek_v3", "glm4_moe")
_LAYERED_KINDS: Final = ("deepseek_v3", "glm4_moe")  # whose head is stored as a layer after the last
LAYERED: Final = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm",
                  "norm": "shared_head.norm"}  # fmt: skip
"""Names of the head's modules in DeepSeek's and GLM's checkpoints, by Qwen's."""

_INTO_THE_STREAM: Final = ("o_proj", "out_proj", "down_proj")


def mtp_case(name: str) -> GoldenCase:
    """Returns a case whose config.json says that the checkpoint has a head."""
    case = CASES[name]
    if name not in _LAYERED_KINDS:
        return case
    changed: dict[str, Any] = {**case.config, "num_nextn_predict_layers": 1}
    return GoldenCase(**{**_fields(case), "config": changed})


def mtp_weights(case: GoldenCase) -> dict[str, np.ndarray]:
    """Returns the head's weights in f32, under the keys of the family's checkpoints."""
    return {stored_key(key, case.config): array for key, array in _weights(case).items()}


def checkpoint_weights(case: GoldenCase) -> dict[str, np.ndarray]:
    """Returns all tensors of a checkpoint with the head; of DeepSeek and GLM the shared ones come once more."""
    weights = {**stored_weights(case), **mtp_weights(case)}
    if case.config["model_type"] in _LAYERED_KINDS:
        above = f"model.layers.{case.config['num_hidden_layers']}."
        weights[above + "embed_tokens.weight"] = weights["model.embed_tokens.weight"]
        weights[above + "shared_head.head.weight"] = weights["lm_head.weight"]
    return weights


def agreeing_weights(case: GoldenCase) -> dict[str, np.ndarray]:
    """Returns tensors of a checkpoint whose head always agrees with the model.

    Layers add nothing to the residual stream, so that the next token follows from the last one alone; and the head
    passes on the embedding of the last token.
    """
    weights, size = checkpoint_weights(case), case.config["hidden_size"]
    for key, array in weights.items():
        if key.removesuffix(".weight").endswith(_INTO_THE_STREAM):
            weights[key] = np.zeros_like(array)
    last, own = weights["model.norm.weight"], mtp_weights(case)
    norm, embedding, fc = (stored_key(f"mtp.{n}.weight", case.config) for n in ("norm", "pre_fc_norm_embedding", "fc"))
    assert {norm, embedding, fc} <= set(own)
    plain = np.ones_like if case.config["model_type"] in _LAYERED_KINDS else np.zeros_like
    passed_on = np.eye(size, 2 * size, dtype=weights[fc].dtype)
    return {**weights, norm: last, embedding: plain(weights[embedding]), fc: passed_on}


def stored_key(key: str, config: Config) -> str:
    """Returns the key in the family's checkpoints of a tensor of the head."""
    if config["model_type"] not in _LAYERED_KINDS:
        return key
    above = f"model.layers.{config['num_hidden_layers']}."
    module, _, kind = key.removeprefix("mtp.").partition(".")
    return f"{above}{LAYERED[module]}.{kind}" if module in LAYERED else above + key.removeprefix("mtp.layers.0.")


def layer_config(config: Config) -> Config:
    """Returns the config of a model whose one layer is the head's: attention, and experts where there are some."""
    changes = {
        "num_hidden_layers": 1,
        "layer_types": ["full_attention"],
        "mlp_only_layers": [],
        "first_k_dense_replace": 0,
        "tie_word_embeddings": False,
    }
    return {**config, **{name: value for name, value in changes.items() if name in config}}


def golden_path(name: str) -> Path:
    """Returns the file of a case's goldens."""
    return Path(__file__).parent / "data" / f"mtp_{name}.npz"


def _weights(case: GoldenCase) -> dict[str, np.ndarray]:
    d = case.config["hidden_size"]
    below = "model.layers.0."
    shapes: dict[str, tuple[int, ...]] = {
        f"mtp.layers.0.{key.removeprefix(below)}": shape
        for key, shape in weight_shapes(layer_config(case.config)).items()
        if key.startswith(below)
    }
    shapes |= {f"mtp.{norm}.weight": (d,) for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
    shapes["mtp.fc.weight"] = (d, 2 * d)
    centre = 1.0 if case.config["model_type"] in _LAYERED_KINDS else 0.0
    return {
        key: random_tensor(key, shape, case.seed, d, 1.0 if "_a_layernorm" in key else centre)
        for key, shape in shapes.items()
    }


def _fields(case: GoldenCase) -> dict[str, Any]:
    return {name: getattr(case, name) for name in case.__dataclass_fields__}
