"""Locations: compilers are told the module path of each op, with the label of a kernel's call; off by default."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from autotune import ConfigSelectorChain, Executor
from autotune import with_kernels as in_kernels
from autotune.supplied import composite_kernels
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import EntryPoint
from run_iree import compile_module
from tests.goldens.cases import CASES
from tests.goldens.samples import LONG
from transformer_core.models import entry_points, load_model

_LOCATION = re.compile(r' loc\("(?:[^"\\]|\\.)*":0:0\)$', re.MULTILINE)
_LOWERINGS = pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "buffered"])
_LAYER = "model.layers.0"
_SHARED = "model.layers.N.self_attn.q_proj"


def _points(tmp_path: Path, labels: bool) -> list[EntryPoint]:
    (tmp_path / "config.json").write_text(json.dumps(CASES["llama_gqa"].config))
    model = load_model(tmp_path)
    points = entry_points(model, names=("forward",), sequence=5)
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    return [in_kernels(point, composite_kernels(), executor) if labels else point for point in points]


def _text(points: Sequence[EntryPoint], streaming: bool, locations: bool = False, blocks: bool = True) -> str:
    pieces: list[str] = []
    form = ExternalParameters()
    lower_module(points, pieces.append, form, streaming=streaming, block_functions=blocks, locations=locations)
    return "".join(pieces)


@pytest.mark.parametrize("blocks", [True, False], ids=["block functions", "inline"])
@_LOWERINGS
def test_locations_are_all_that_the_option_adds(streaming: bool, blocks: bool, tmp_path: Path) -> None:
    points = _points(tmp_path, labels=True)
    plain = _text(points, streaming, blocks=blocks)
    located = _text(points, streaming, blocks=blocks, locations=True)
    assert located == _text(points, not streaming, blocks=blocks, locations=True)
    assert _LOCATION.sub("", located) == plain
    assert " loc(" not in plain
    ops = [line for line in located.splitlines() if line.startswith("    ") and " = " in line]
    assert all(_LOCATION.search(line) for line in ops if not line.endswith("({"))


@pytest.mark.parametrize("streaming", [True, False] if LONG else [True])  # the texts are the same: above
def test_the_compilers_dumps_and_the_compiled_module_name_kernel_configuration_and_module_path(
    streaming: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_OPS_STAMP", "json")
    points = _points(tmp_path, labels=True)

    for locations in (True, False):
        folder = tmp_path / str(locations)
        folder.mkdir()
        (folder / "module.mlir").write_text(_text(points, streaming, locations=locations))
        dumps = f"--iree-hal-dump-executable-sources-to={folder}", "--mlir-print-debuginfo"
        compile_module(folder / "module.mlir", folder / "module.vmfb", "vmvx", extra_flags=dumps)
        sources = "".join(file.read_text() for file in sorted(folder.glob("tapeline_forward_dispatch_*.mlir")))
        label = rf'callsite\("{_SHARED}\.tapeline_ops#linear@v\d+:\w+ (.*?)":0:0 at callsite\("{_LAYER}":0:0 at '
        labels = re.findall(label, sources)
        assert bool(labels) is locations
        assert all(
            "\\22cfg\\22:{\\22__class__\\22:\\22autotune.supplied._linear:LinearConfig" in text for text in labels
        )
        compiled = (folder / "module.vmfb").read_bytes()
        assert (f"{_SHARED}.tapeline_ops#linear@v".encode() in compiled) is locations
