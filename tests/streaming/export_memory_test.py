"""A whole export keeps no more of a model with many layers than of one with few: not its text, nor its description."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

_MIB: Final = 1 << 20
_FEW, _MANY = 22, 300
_CONFIG: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 37,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
# In a process of its own: memory that this one has freed would be taken anew, and not be seen.
_PROGRAM: Final = """import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
import tapeline
model, output = sys.argv[1:]
tapeline.export(model, output, entry_points=["forward"], weights="none", target=(), verify="none")
"""


def _phases(folder: Path, layers: int) -> dict[str, Any]:
    """Exports a model of so many layers; returns the phases of its report."""
    model = folder / f"model{layers}"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({**_CONFIG, "num_hidden_layers": layers}))
    output = folder / f"bundle{layers}"
    command = [sys.executable, *(["-S"] if sys.flags.no_site else []), "-c", _PROGRAM, str(model), str(output)]
    subprocess.run(command, input=pickle.dumps(sys.path), check=True, timeout=600)
    return json.loads((output / "report.json").read_text())["phases"]


@pytest.mark.parametrize("phase", ["load", "lower"])
def test_the_peak_does_not_grow_with_the_layers(phase: str, phases: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Making description and archive table in memory took 6 MiB more for 500 layers: 3.4 MiB for 300."""
    few, many = phases
    for kind in ("anonymous_delta_bytes", "rss_delta_bytes"):
        assert many[phase][kind] - few[phase][kind] < 2 * _MIB, kind


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The phases of exports of a model with few layers, and with many."""
    folder = tmp_path_factory.mktemp("layers")
    return _phases(folder, _FEW), _phases(folder, _MANY)
