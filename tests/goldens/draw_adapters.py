"""Hold drawn LoRA adapters to PEFT: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.draw_adapters --count 300

Each adapter is a ``LoraConfig`` drawn from what PEFT takes, on a tiny Llama with a tied or separate head, with random
numbers in all of its tensors. The logits of PEFT's live model are compared with those of the eager forward.
"""

import argparse
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from lang_core import EagerExecutionContext, InputError
from tests.goldens.cases import CASES
from tests.goldens.draw_families import TOLERANCE, Outcome, error_of
from tests.goldens.weights import write_checkpoint
from transformer_core.checkpoints import Adapter, SafetensorsCheckpoint
from transformer_core.models import load_model, weights_of

_MODELS: Final = ("llama_tied", "llama_gqa", "llama_attention_bias_batch", "gpt2")
_LINEAR: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_GPT2: Final = ("c_attn", "c_proj", "attn.c_proj", "c_fc")
_ENDS: Final = ("embed_tokens", "lm_head")
_GPT2_ENDS: Final = ("wte", "lm_head")


def main() -> int:
    """Draws adapters, and prints what differs and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="number of one adapter to draw again")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    numbers = range(options.count) if options.only is None else [options.only]
    counts: Counter[str] = Counter()
    worst = 0.0
    for number in numbers:
        rng = random.Random(f"{options.seed} {number}")
        name = rng.choice(_MODELS)
        settings, save = _settings(rng, gpt2=name == "gpt2"), rng.choice([True, False, "auto"])
        outcome = _outcome(rng, name, settings, save)
        counts[outcome.kind] += 1
        worst = max(worst, outcome.error)
        if outcome.kind not in ("equal", "not made") or options.only is not None:
            print(f"{number}: {outcome.kind}: {outcome.reason}\n  {name}, save_embedding_layers={save}, {settings}")
    print(f"{dict(counts)}, greatest difference {worst:.1e}")
    return 1 if counts["differs"] or counts["failed"] else 0


def _settings(rng: random.Random, *, gpt2: bool) -> dict[str, Any]:
    """Returns fields of LoraConfig; a seventh of the drawn sets has one that is refused."""
    modules = _GPT2 if gpt2 else _LINEAR
    chosen: Any = rng.sample(modules, rng.randint(1, 3))
    if rng.random() < 0.3:
        chosen += rng.sample(_GPT2_ENDS if gpt2 else _ENDS, rng.randint(1, 2))
    kind = rng.random()
    targets: Any = "all-linear" if kind < 0.1 else rf".*\.({'|'.join(chosen)})" if kind < 0.25 else chosen
    settings: dict[str, Any] = {"r": rng.randint(1, 6), "lora_alpha": rng.randint(1, 9), "target_modules": targets}
    patterns = [
        rng.choice(modules),
        r"layers\.0\..*",
        rf"^.*\.{rng.choice(modules)}",
        "model.layers.1.self_attn.q_proj",
    ]
    choices: dict[str, Any] = {
        "rank_pattern": lambda: {pattern: rng.randint(1, 7) for pattern in rng.sample(patterns, 2)},
        "alpha_pattern": lambda: {pattern: rng.randint(1, 9) for pattern in rng.sample(patterns, 2)},
        "use_rslora": lambda: True,
        "use_dora": lambda: True,
        "bias": lambda: rng.choice(["all", "lora_only"]),
        "lora_bias": lambda: True,
        "lora_dropout": lambda: 0.1,
        "ensure_weight_tying": lambda: True,
        "exclude_modules": lambda: [rng.choice(modules)],
        "modules_to_save": lambda: rng.sample(["wte", "ln_f"] if gpt2 else [*_ENDS, "norm", "input_layernorm"], 1),
    }
    for field, value in choices.items():
        if rng.random() < 0.2:
            settings[field] = value()
    if isinstance(targets, list) and rng.random() < 0.2:
        settings["layers_to_transform"] = rng.choice([[0], [1], 1])
        if rng.random() < 0.5:
            settings["layers_pattern"] = "h" if gpt2 else "layers"
    if gpt2:
        settings["fan_in_fan_out"] = rng.random() < 0.8
    if rng.random() < 0.15:
        settings |= rng.choice(
            [
                {"init_lora_weights": "pissa"},
                {"init_lora_weights": "olora"},
                {"layer_replication": [(0, 2), (1, 2)]},
                {"target_parameters": ["mlp.experts.gate_up_proj"]},
                {"alora_invocation_tokens": [3]},
                {"use_qalora": True, "qalora_group_size": 2},
            ]
        )
    else:
        settings["init_lora_weights"] = rng.choice([True, False, "gaussian", "orthogonal"])
    if rng.random() < 0.2:
        parameters = ["wpe.weight"] if gpt2 else ["embed_tokens.weight", "lm_head.weight"]
        parameters += [f"layers.0.self_attn.{name}.weight" for name in _LINEAR[:4]]
        settings |= {
            "target_parameters": rng.sample([*parameters, *(f"{name}.weight" for name in modules)], rng.randint(1, 2)),
            "lora_dropout": 0.0,
            "rank_pattern": rng.choice([{}, {rf"{rng.choice(modules)}.weight": 3, rng.choice(modules): 2}]),
        }
        if rng.random() < 0.7:
            settings["target_modules"] = []
        for field in ("use_dora", "lora_bias", "fan_in_fan_out"):
            settings.pop(field, None)
    if rng.random() < 0.15:
        settings["trainable_token_indices"] = rng.choice([[1, 3], [5, 2, 0]])
    return settings


def _outcome(rng: random.Random, name: str, settings: dict[str, Any], save: bool | str) -> Outcome:
    case = CASES[name]
    with tempfile.TemporaryDirectory() as place:
        base, adapter = Path(place, "base"), Path(place, "adapter")
        base.mkdir()
        write_checkpoint(base, case)
        prompt = np.array(case.prompt, np.int32)
        torch.manual_seed(rng.randrange(1 << 32))
        try:
            _save(base, adapter, settings, save)
            live = PeftModel.from_pretrained(_model(base), adapter).eval()
            expected = live(torch.tensor(prompt.astype(np.int64)), use_cache=False).logits.numpy()
        except Exception as error:  # noqa: BLE001 - whatever PEFT raises for a contradiction
            return Outcome("not made", f"{type(error).__name__}: {error}")
        try:
            with SafetensorsCheckpoint(base) as weights, Adapter(adapter) as opened:
                model = load_model(base, adapters=[opened])
                given: Any = prompt
                logits = model(EagerExecutionContext(weights_of(model, weights, [opened])), given)
        except InputError as error:
            return Outcome("refused", str(error))
        except Exception as error:  # noqa: BLE001 - reported as the fault that it is
            return Outcome("failed", f"{type(error).__name__}: {error}")
    found = error_of(logits, expected)
    return Outcome("equal" if found < TOLERANCE else "differs", f"by {found:.2g}", found)


def _model(directory: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def _save(base: Path, directory: Path, settings: dict[str, Any], save: bool | str) -> None:
    """Saves an adapter after a change of all that it trains, and of rows of the embedding."""
    adapted: Any = get_peft_model(_model(base), LoraConfig(task_type="CAUSAL_LM", **settings))
    for name, parameter in adapted.named_parameters():
        if "lora_magnitude" in name:
            parameter *= 1 + 0.2 * torch.rand_like(parameter)
        elif "modules_to_save" in name or (parameter.requires_grad and ".bias" in name):
            parameter += 0.1 * torch.randn_like(parameter)
        elif "lora_" in name:
            parameter.copy_(0.1 * torch.randn_like(parameter))
    if save is True:
        embedding = adapted.get_input_embeddings()
        if not hasattr(embedding, "modules_to_save"):
            getattr(embedding, "base_layer", embedding).weight[3:6] += 0.1
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(directory, save_embedding_layers=save)


if __name__ == "__main__":
    sys.exit(main())
