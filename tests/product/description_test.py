"""kernel_config.json against its module: every private function is described, and what contradicts does not run."""

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jaxlib.mlir import ir

from lang_core import DescriptionError
from tapeline.analysis.inspecting import facts, graph_text
from tapeline.bundle import MARK, MODULE, Bundle, executable_name
from tests.emission._support import parsed
from tests.goldens.cases import CASES
from tests.product import _bundles
from tests.product._bundles import Finished, export_case, invoke, refused

_LLAMA = CASES["llama_gqa"]
compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")
# Heads of 64 and a feed-forward of 96: rows of whole blocks of 32.
_CONFIG = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}
_CASE = dataclasses.replace(_LLAMA, config={**_LLAMA.config, **_CONFIG, "num_key_value_heads": 2})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The options of kernel_dump_test, so that both share one compilation."""
    folder = tmp_path_factory.mktemp("described")
    return export_case(_CASE, folder, quantize="q8_0", sequence=3, max_sequence=7, target=("llvm-cpu",))


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    """A copy to edit."""
    return Path(shutil.copytree(whole, tmp_path / "bundle"))


@pytest.fixture
def running(capsys: pytest.CaptureFixture[str], bundle: Path) -> Callable[[], Finished]:
    return lambda: invoke("generate", capsys, f"--bundle={bundle}", "--token_ids=1,2", "--max_new_tokens=2")


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield inner
                yield from _operations(inner)


def _spec(kind: Any) -> tuple[str, list[int]]:
    tensor = ir.RankedTensorType(kind)
    names = {"i1": "bool", "ui8": "u8"}
    name = str(tensor.element_type)
    return names.get(name, name), list(tensor.shape)


def _config(bundle: Path) -> dict[str, Any]:
    return json.loads((bundle / MARK).read_text())


def test_every_private_function_has_its_signature(whole: Path) -> None:
    """The truth is MLIR's own parser."""
    module = parsed((whole / MODULE).read_text(), allow_unregistered=True)
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    private = {
        ir.StringAttr(op.attributes["sym_name"]).value: op
        for op in functions
        if "sym_visibility" in op.operation.attributes
        and ir.StringAttr(op.attributes["sym_visibility"]).value == "private"
    }
    calls = Counter(
        ir.FlatSymbolRefAttr(op.operation.attributes["callee"]).value
        for op in _operations(module.operation)
        if op.operation.name in ("func.call", "call")
    )
    kernels = {kernel["name"]: kernel for kernel in _config(whole)["kernels"]}
    assert list(kernels) == list(private)
    assert len(private) > 10
    assert {"block", "packed_linear", "block_quantize", "rms_norm_quantize"} <= {k["kind"] for k in kernels.values()}
    for name, function in private.items():
        kernel, kind = kernels[name], ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        assert [(entry["dtype"], entry["shape"]) for entry in kernel["arguments"]] == list(map(_spec, kind.inputs))
        assert [(entry["dtype"], entry["shape"]) for entry in kernel["results"]] == list(map(_spec, kind.results))
        assert kernel["call_sites"] == calls[name] > 0
        ranks = [len(entry["shape"]) for entry in kernel["arguments"]]
        assert ranks == sorted(ranks, key=lambda rank: rank == 0), "tensors stand before scalars"
        tensors = [entry["effective"] for entry in kernel["arguments"] if entry["shape"]]
        assert kernel["signature"] == tensors + ["OUT"] * len(kernel["results"])
        assert kernel["reason"] is None
        if kernel["kind"] != "block":
            assert set(tensors) == {"IN"}
    assert {kernels[name]["kind"] for name in _config(whole)["targets"]["llvm-cpu"]["kernels"]} >= {"packed_linear"}


def test_config_inspect_and_graph_have_one_count_of_call_sites(whole: Path) -> None:
    opened = Bundle(whole)
    described = {kernel.name: kernel.call_sites for kernel in opened.config.kernels}
    shown = {kernel["name"]: kernel["call_sites"] for kernel in facts(opened, hashes=False)["kernels"]}
    graph = json.loads(graph_text(whole, opened.config.entry_points, "json"))
    drawn = {function["name"]: function["call_sites"] for function in graph["functions"]}
    assert described == shown == {name: drawn[name] for name in described}
    assert "called x0" not in graph_text(whole, opened.config.entry_points, "dot")


def test_what_is_described_runs(running: Callable[[], Finished]) -> None:
    assert running().code == 0


def _edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(bundle: Path) -> None:
        fields = _config(bundle)
        change(fields)
        (bundle / MARK).write_text(json.dumps(fields))

    return edit


def _cache(fields: dict[str, Any]) -> dict[str, Any]:
    return next(argument for argument in fields["entry_points"][1]["args"] if argument["donated"])


def _kept(fields: dict[str, Any]) -> None:
    """A donated argument is said to be kept, by all fields at once and with its seal."""
    fields["schema"] = 1
    point, cache = fields["entry_points"][1], _cache(fields)
    for result in point["results"]:
        if result["name"] == cache["alias_result"]:
            result.update(direction="OUT", alias_arg=None)
    cache.update(direction="IN", alias_result=None, donated=False, effective="IN", in_place=False)
    _old_signatures(fields)


def _old_signatures(fields: dict[str, Any]) -> None:
    """Kernels as schema 1 has them: blocks alone, signatures of arguments."""
    fields["schema"] = 1
    fields["kernels"] = [kernel for kernel in fields["kernels"] if kernel["kind"] == "block"]
    for kernel in fields["kernels"]:
        kernel["signature"] = kernel["signature"][: -len(kernel["results"])]
        for name in ("kind", "attributes", "source"):
            del kernel[name]


def _replace(bundle: Path) -> None:
    path = bundle / MODULE
    path.write_text(path.read_text().replace("stablehlo.add", "stablehlo.subtract", 1))


def _turned(kernel: dict[str, Any]) -> None:
    """A direction that contradicts nothing in the file: an argument and the signature alike."""
    kernel["arguments"][0]["effective"] = kernel["signature"][0] = "INOUT"


_CONTRADICTIONS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a kernel's signature": (
        _edit(lambda f: f["kernels"][0]["signature"].__setitem__(0, "OUT")),
        "kernel 'block.model.layers.N': signature is ['OUT', ",
    ),
    "a kernel's signature in schema 1": (
        _edit(lambda f: (_old_signatures(f), f["kernels"][0]["signature"].__setitem__(0, "OUT"))),
        "kernel 'block.model.layers.N': signature is ['OUT', ",
    ),
    "a kernel's directions": (
        _edit(lambda f: _turned(f["kernels"][1])),
        "kernels: 'block.model.layers.N.2' was edited",
    ),
    "a kernel that does not exist": (
        _edit(lambda f: f["kernels"].append({"name": "block.model.layer.N", "call_sites": 1, "signature": ["IN"]})),
        "kernels: 'block.model.layer.N' is listed, and not found in its seals; available: block.model.layers.N, ",
    ),
    "a kernel that does not exist, sealed": (
        _edit(lambda f: (f.pop("seals"), f["kernels"].append({"name": "k", "call_sites": 1, "signature": ["IN"]}))),
        "kernels: 'k' is listed, and not found in module.mlir; available: block.model.layers.N, ",
    ),
    "no kernels": (
        _edit(lambda f: f.update(kernels=[])),
        "kernels: 'block.model.layers.N' is not listed, and found in its seals",
    ),
    "no kernels, sealed": (
        _edit(lambda f: (f.pop("seals"), f.update(kernels=[]))),
        "kernels: 'block.model.layers.N' is not listed, and found in module.mlir",
    ),
    "a kernel twice": (
        _edit(lambda f: f["kernels"].append(f["kernels"][0])),
        "kernel 'block.model.layers.N' is listed twice",
    ),
    "a kernel's call sites": (
        _edit(lambda f: (f.pop("seals"), f["kernels"][0].update(call_sites=7))),
        "kernels: 'block.model.layers.N': call_sites is 7 in the description, 2 in module.mlir",
    ),
    "a kernel's shapes": (
        _edit(lambda f: (f.pop("seals"), f["kernels"][0]["arguments"][0].update(shape=[1, 2, 3]))),
        "kernels: 'block.model.layers.N': arguments is ['f32[1,2,3]', ",
    ),
    "a donated argument said to be IN": (
        _edit(lambda f: (f.pop("seals"), _cache(f).update(direction="IN"))),
        "entry point 'decode': argument 'layers.0.key_cache' has direction IN, donated True and alias_result 'l",
    ),
    "a donated argument said to be kept": (
        _edit(_kept),
        "entry point 'decode': argument 'layers.0.key_cache': direction is IN in the description, INOUT in the module",
    ),
    "a result's alias": (
        _edit(lambda f: (f.pop("seals"), f["entry_points"][0]["results"][1].update(alias_arg=None))),
        "entry point 'prefill': result 'layers.0.key_cache': alias_arg is None, the arguments' aliases make it layer",
    ),
    "two arguments of one result": (
        _edit(lambda f: (f.pop("seals"), f["entry_points"][0]["args"][4].update(alias_result="layers.0.key_cache"))),
        "arguments 'layers.0.key_cache' and 'layers.0.value_cache' have the same alias_result, 'layers.0.key_cache'",
    ),
    "the range of a position": (
        _edit(lambda f: f["entry_points"][0]["args"][1].update(bounds=[0, 1 << 20])),
        "entry_points: 'prefill' was edited",
    ),
    "a guard": (
        _edit(lambda f: (f.pop("seals"), f["entry_points"][0]["args"][0].update(guarded=True))),
        "entry point 'prefill': argument 'token_ids': guarded is True in the description, False in the module",
    ),
    "an entry point": (
        _edit(lambda f: (f.pop("seals"), f["entry_points"].pop())),
        "entry points do not list decode, which module.llvm-cpu.vmfb has",
    ),
    "another text": (_replace, "module.mlir is not the file that kernel_config.json describes (sha256 differs)"),
    "another hash": (
        _edit(lambda f: f["sha256"].update({executable_name("llvm-cpu"): "0" * 64})),
        "module.llvm-cpu.vmfb is not the file that kernel_config.json describes (sha256 differs)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("edit", _CONTRADICTIONS)
def test_a_description_that_contradicts_its_module_does_not_run(
    edit: str, bundle: Path, running: Callable[[], Finished]
) -> None:
    change, message = _CONTRADICTIONS[edit]
    change(bundle)
    refused(running(), message)
    with pytest.raises(DescriptionError, match=r": export (the bundle )?again$"):
        Bundle(bundle).session("local-task").close()


def test_schema_one_is_read(bundle: Path, whole: Path, running: Callable[[], Finished]) -> None:
    _edit(_old_signatures)(bundle)
    kernels = Bundle(bundle).config.kernels
    newer = {kernel.name: kernel.signature for kernel in Bundle(whole).config.kernels}
    assert [kernel.signature for kernel in kernels] == [newer[kernel.name] for kernel in kernels]
    assert running().code == 0


def test_a_kernel_without_a_signature_asserts_nothing(bundle: Path, running: Callable[[], Finished]) -> None:
    _edit(lambda f: f["kernels"][0].update(signature=None, reason="lost"))(bundle)
    assert running().code == 0
    assert Bundle(bundle).config.kernels[0].reason == "lost"
