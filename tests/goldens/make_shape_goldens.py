"""Write data/shapes.json with transformers: keys and shapes of the checkpoints of some cases.

    python -m tests.goldens.make_shape_goldens

Of each case, and of the same in sizes of whole blocks (``packed_families.py``), a model is saved; the file has what its
header has, layers of equal shapes once.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import safetensors
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from tests.goldens._case_types import Config
from tests.goldens._written_shapes import COMPUTED, FILE, digest_of
from tests.goldens.cases import WRITTEN_CASES
from tests.goldens.gguf_cases import GGUF_CASES
from tests.goldens.packed_families import FAMILIES, packed_case

_LAYER = re.compile(r"\.(\d+)\.")


def main() -> int:
    """Write the file anew."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    entries: dict[str, dict[str, Any]] = {}
    for case in WRITTEN_CASES:
        name = case.config["model_type"]
        of_file = [GGUF_CASES[case.name].config] if case.name in GGUF_CASES else []
        configs = [case.config, *of_file, *([packed_case(name).config] if FAMILIES[name].name == case.name else [])]
        for config in configs:
            entries.setdefault(name, {})[digest_of(config)] = _patterns(_shapes(config))
    lines = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(
            f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in of_type.items()
        )
        + "}"
        for name, of_type in sorted(entries.items())
    ]
    FILE.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    return 0


def _shapes(config: Config) -> dict[str, list[int]]:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(config))
        read = AutoConfig.from_pretrained(name)
        AutoModelForCausalLM.from_config(read, dtype=torch.float32).save_pretrained(name)
        with safetensors.safe_open(Path(name) / "model.safetensors", "np") as file:
            keys = [key for key in file.keys() if not key.endswith(COMPUTED)]  # noqa: SIM118 - no mapping
            return {key: file.get_slice(key).get_shape() for key in keys}


def _patterns(shapes: dict[str, list[int]]) -> list[Any]:
    """Returns groups of layers with equal shapes: their numbers, and shapes by key with ``{}`` for the number."""
    layers: dict[str, dict[str, list[int]]] = {}
    for key, shape in shapes.items():
        match = _LAYER.search(key)
        number = match[1] if match else ""
        pattern = f"{key[: match.start()]}.{{}}.{key[match.end() :]}" if match else key
        layers.setdefault(number, {})[pattern] = shape
    groups: list[tuple[list[str], dict[str, list[int]]]] = []
    for number, of_layer in layers.items():
        same = next((numbers for numbers, known in groups if known == of_layer), None)
        if same is None:
            groups.append(([number], of_layer))
        else:
            same.append(number)
    return [list(group) for group in groups]


if __name__ == "__main__":
    sys.exit(main())
