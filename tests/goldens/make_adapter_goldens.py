"""Compute the goldens of LoRA adapters with PEFT: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_adapter_goldens [CASE ..]

Each case of ``adapter_cases`` trains nothing: PEFT initialises its adapters with random numbers that change the model.
The files are what PEFT saves, and the logits of the model after ``merge_and_unload``, or of the live model. Weights are
those of ``add_weighted_adapter``: the factor of an adapter's scaling.
"""

import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from tests.goldens.adapter_cases import ADAPTER_CASES, ADAPTERS, AdapterCase
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint

_VISIBLE = 1e-2


def main() -> int:
    """Makes all files anew, or those of the cases that are named."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module="peft")
    for name in sys.argv[1:] or ADAPTER_CASES:
        shutil.rmtree(ADAPTERS / name, ignore_errors=True)
        _make(ADAPTER_CASES[name])
    versions = {"peft": peft.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    (ADAPTERS / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
    return 0


def _make(case: AdapterCase) -> None:
    torch.manual_seed(case.seed)
    prompt = torch.tensor(CASES[case.model].prompt)
    with tempfile.TemporaryDirectory() as name:
        write_checkpoint(Path(name), CASES[case.model])
        before = _model(name)(prompt, use_cache=False).logits.numpy()
        for number, settings in enumerate(case.adapters):
            _write(_model(name), settings, ADAPTERS / case.name / str(number), case)
        logits = _merged(_model(name), case)(prompt, use_cache=False).logits.numpy()
    change = float(np.abs(logits - before).max())
    if change < _VISIBLE or not np.isfinite(change):
        raise RuntimeError(f"{case.name}: the adapters change logits by {change:.2g}")
    np.save(ADAPTERS / case.name / "logits.npy", logits)
    print(f"{case.name}: changes logits by {change:.3g} of {np.abs(before).max():.3g}")


def _model(directory: str) -> Any:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def _write(model: Any, settings: dict[str, Any], directory: Path, case: AdapterCase) -> None:
    """Writes an adapter as PEFT does; what it replaces, and magnitudes, are changed before."""
    adapted = get_peft_model(model, LoraConfig(**settings, init_lora_weights=False))
    for name, parameter in adapted.named_parameters():
        if "lora_magnitude" in name:
            parameter *= 1 + 0.2 * torch.rand_like(parameter)
        elif "trainable_tokens" in name:
            parameter += 0.5 * torch.randn_like(parameter)
        elif "modules_to_save" in name or (parameter.requires_grad and ".bias" in name):
            parameter += 0.1 * torch.randn_like(parameter)
        elif "lora_" in name:
            parameter *= 0.1 / parameter.std() if parameter.numel() > 1 else 1
    if case.rows:
        adapted.get_input_embeddings().base_layer.weight[3:6] += 0.1
    adapted.peft_config["default"].base_model_name_or_path = case.model
    adapted.save_pretrained(directory, save_embedding_layers=True if case.rows or case.embeddings else "auto")
    (directory / "README.md").unlink()


def _merged(model: Any, case: AdapterCase) -> Any:
    """Returns the model with all adapters, each times its weight: merged, or live."""
    names = [str(number) for number in range(len(case.adapters))]
    adapted = PeftModel.from_pretrained(model, ADAPTERS / case.name / names[0], adapter_name=names[0])
    for name in names[1:]:
        adapted.load_adapter(ADAPTERS / case.name / name, adapter_name=name)
    if case.official:
        adapted.add_weighted_adapter(names, list(case.weights), "sum", combination_type="cat")
        names = ["sum"]
    else:
        for module in adapted.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                for name, weight in zip(names, case.weights, strict=True):
                    if name in module.scaling:
                        module.scaling[name] *= weight
    return adapted if case.live else adapted.merge_and_unload(adapter_names=names)


if __name__ == "__main__":
    sys.exit(main())
