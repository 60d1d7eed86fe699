"""Train the demo model with PEFT and torch: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_training_goldens

It writes tapeline/finetuning/testdata/peft.npz: ``token_ids`` i32 [S, B, T + 1], the windows of each step;
``lora_losses`` f64 [S], of an adapter whose first values of A are ``first/KEY`` and whose last values are ``last/KEY``;
``full_losses`` f64 [S], of all parameters, and ``norms/KEY`` f64 [2], the sum of squares of some of them and of their
change; ``options`` as JSON; ``made_by``. The optimizer is torch.optim.AdamW behind clip_grad_norm_, matrices decay.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import tokenizers
import torch
import transformers
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM

from tapeline.demo import TOKENIZER, write_demo_checkpoint

_ROOT = Path(__file__).parents[2]
_OUTPUT = _ROOT / "tapeline" / "finetuning" / "testdata" / "peft.npz"
_OPTIONS = {
    "steps": 6,
    "batch": 2,
    "sequence": 48,
    "lora": 3,
    "lora_alpha": 12.0,
    "lora_targets": ["q_proj", "v_proj", "down_proj"],
    "lora_rate": 0.005,
    "full_rate": 0.001,
    "weight_decay": 0.1,
    "largest_norm": 0.5,
}
_WATCHED = ("model.embed_tokens.weight", "model.layers.2.self_attn.k_proj.weight", "model.norm.weight")


def main() -> int:
    """Makes the file."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    token_ids = _windows()
    arrays: dict[str, Any] = {"token_ids": token_ids, "options": np.array(json.dumps(_OPTIONS))}
    with tempfile.TemporaryDirectory() as name:
        write_demo_checkpoint(Path(name))
        config = LoraConfig(
            r=_OPTIONS["lora"],
            lora_alpha=_OPTIONS["lora_alpha"],
            target_modules=_OPTIONS["lora_targets"],
            task_type="CAUSAL_LM",
        )
        adapted = get_peft_model(_model(name), config)
        arrays |= _factors(adapted, "first")
        arrays["lora_losses"] = _train(adapted, token_ids, _OPTIONS["lora_rate"])
        arrays |= _factors(adapted, "last")
        whole = _model(name)
        before = {key: value.detach().clone() for key, value in whole.state_dict().items()}
        arrays["full_losses"] = _train(whole, token_ids, _OPTIONS["full_rate"])
        for key in _WATCHED:
            after = whole.state_dict()[key].double()
            squares = [float((tensor**2).sum()) for tensor in (after, after - before[key].double())]
            arrays[f"norms/{key}"] = np.array(squares)
    versions = {package.__name__: package.__version__ for package in (peft, torch, transformers)}
    made_by = np.array(f"tests/goldens/make_training_goldens.py, {versions}")
    np.savez_compressed(_OUTPUT, **arrays, made_by=made_by)
    print(arrays["lora_losses"], arrays["full_losses"], _OUTPUT.stat().st_size, "bytes")
    return 0


def _model(directory: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").train()


def _windows() -> np.ndarray:
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    text = (_ROOT / "tools" / "demo" / "passages.txt").read_text(encoding="utf-8")
    ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
    length = _OPTIONS["sequence"] + 1
    starts = np.random.default_rng(3).integers(0, len(ids) - length, (_OPTIONS["steps"], _OPTIONS["batch"], 1))
    return ids[starts + np.arange(length)]


def _train(model: Any, token_ids: np.ndarray, rate: float) -> np.ndarray:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    chosen: Callable[[bool], list[Any]] = lambda matrix: [p for p in trained if (p.ndim > 1) is matrix]  # noqa: E731
    groups = [
        {"params": chosen(True), "weight_decay": _OPTIONS["weight_decay"]},
        {"params": chosen(False), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=rate)
    losses: list[float] = []
    for windows in token_ids:
        ids = torch.tensor(windows).long()
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, _OPTIONS["largest_norm"])
        optimizer.step()
        losses.append(float(loss.detach()))
    return np.array(losses)


def _factors(model: Any, when: str) -> dict[str, np.ndarray]:
    state = get_peft_model_state_dict(model)
    wanted = {key: value for key, value in state.items() if when == "last" or "lora_A" in key}
    return {f"{when}/{key.removeprefix('base_model.model.')}": value.numpy().copy() for key, value in wanted.items()}


if __name__ == "__main__":
    sys.exit(main())
