"""Dumps of the tensors of kernels: what each call of a private function is given and returns."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters, KernelSite
from lang_core import Argument, DescriptionError, EntryPoint, InputError, TagSelection, TensorSpec, VerificationError
from lang_core.ops import PLANE_BASE
from run_iree import Session, compile_module
from run_iree.archive import ArchiveWeights
from runtime import Session as AnySession
from runtime.dump import (
    Dump,
    Dumper,
    DumpLimits,
    DumpRecord,
    DumpWriter,
    eager_call,
    kernel_sites,
    read_dump,
)
from tapeline.backends import ENGINES, Place, dumped_module, open_session
from tapeline.bundle import ARCHIVE, ARTIFACT, DEBUG_MODULE, Bundle, dumping
from tests.goldens.cases import CASES
from tests.product import _bundles
from tests.product._bundles import export_case
from transformer_core.models import entry_points, load_model

_LLAMA = CASES["llama_gqa"]
_CONFIG = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}
_CASE = dataclasses.replace(_LLAMA, config={**_LLAMA.config, **_CONFIG, "num_key_value_heads": 2})
_SIZES: dict[str, Any] = {"sequence": 3, "max_sequence": 7}
# The layers as blocks, every kernel of layer 1, and one tag.
_GLOBS = ("*.block.*", "model.layers.1.*", "logits")
compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")
_KERNEL = ("name", "direction", "when", "module_path", "line", "dtype", "shape", "kernel", "call_site", "layer")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    return export_case(_CASE, folder, quantize="q8_0", dump_tags=_GLOBS, target=("llvm-cpu",), **_SIZES)


def _points(bundle: Path) -> dict[str, EntryPoint]:
    model = load_model(bundle.parent / "model", "f32", quantize="q8_0")
    return {point.name: point for point in entry_points(model, names=("prefill", "decode"), **_SIZES)}


def _dump(bundle: Path, directory: Path, level: int, limits: DumpLimits | None = None, engine: str = "iree") -> Dump:
    """A prompt of two tokens and one more."""
    opened, place = Bundle(bundle), Place(engine)
    module = dumped_module(opened, place)
    with (
        dumping(opened, directory, device=place.name, level=level, limits=limits, module=module) as dumper,
        open_session(opened, place, dumper) as session,
    ):
        _run(opened, session)
    return read_dump(directory)


def _run(opened: Bundle, session: AnySession) -> None:
    prefill = session.function("prefill")
    caches = [session.zeros(argument.spec) for argument in opened.entry_point("prefill").arguments[3:]]
    results = prefill(np.array([[5, 6, 0]], np.int32), 0, 1, *caches)
    session.function("decode")(np.array([[9]], np.int32), 2, *results[1 : 1 + len(caches)])


@pytest.fixture(scope="module", params=ENGINES)
def dump(bundle: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Dump:
    return _dump(bundle, tmp_path_factory.mktemp("dump") / "dump", 2, engine=request.param)


def _sites(bundle: Path) -> dict[str, Sequence[KernelSite]]:
    debug = Bundle(bundle).config.debug
    assert debug is not None
    return {name: [config.site for config in configs] for name, configs in debug.kernels.items()}


def test_both_lowerings_trace_the_same_calls(bundle: Path) -> None:
    points = [*_points(bundle).values()]
    made = []
    for streaming in (True, False):
        text: list[str] = []
        lowered = lower_module(
            points,
            text.append,
            ExternalParameters(),
            streaming=streaming,
            block_functions=False,
            tags=TagSelection(_GLOBS),
            trace_kernels=True,
        )
        made.append(("".join(text), {p.name: f.sites for p, f in zip(points, lowered.traced, strict=True)}))
    assert made[0] == made[1]
    assert (bundle / DEBUG_MODULE).read_text() == made[0][0]
    assert {name: list(sites) for name, sites in made[0][1].items()} == _sites(bundle)
    assert kernel_sites(points, _GLOBS) == made[0][1]


def test_records_name_the_kernel_its_call_and_its_layer(bundle: Path, dump: Dump) -> None:
    """Tensors of each call: one per tensor argument before it, one per result after it, as the signature says."""
    signatures = {kernel.name: kernel.signature for kernel in Bundle(bundle).config.kernels}
    records = [record for record in dump.records if record.kernel is not None]
    layers = {record.layer for record in records}
    assert layers == {0, 1}
    assert {record.module_path for record in records if record.layer == 0} == {"model.layers.0"}
    calls: dict[tuple[int, int | None], list[DumpRecord]] = {}
    for record in records:
        calls.setdefault((record.step, record.call_site), []).append(record)
    kinds = set()
    for tensors in calls.values():
        before = [record.direction for record in tensors if record.when == "before"]
        after = [record.direction for record in tensors if record.when == "after"]
        kernel = tensors[0].kernel
        assert kernel is not None
        assert before + ["OUT"] * len(after) == signatures[kernel]
        assert after.count("INOUT") == before.count("INOUT")
        assert set(after) <= {"INOUT", "OUT"}
        assert {record.kernel for record in tensors} == {kernel}
        kinds.add(kernel.split(".")[0])
    assert kinds >= {"block", "packed_linear", "block_quantize", "rms_norm_quantize", "silu_quantize"}
    assert {record.name for record in dump.records if record.direction == "TAG"} > {"logits", "model.layers.1.output"}
    update = [r for r in records if r.name == "model.layers.1.block.arg3" and r.step == 1]
    assert [(record.direction, record.when) for record in update] == [("INOUT", "before"), ("INOUT", "after")]
    before, after = (dump.load(record) for record in update)
    assert (before != after).any(axis=(0, 1, 3)).tolist() == [i == 2 for i in range(_SIZES["max_sequence"])]


def _check_with_eager(bundle: Path, points: dict[str, EntryPoint], dump: Dump, directory: Path) -> list[DumpRecord]:
    """Compares the tensors of kernels with those of the eager context; returns the records."""
    globs = dump.tags or []
    with (
        ArchiveWeights(bundle / ARCHIVE) as weights,
        DumpWriter(directory, level=2, source={"context": "eager"}, tags=globs) as writer,
    ):
        dumper = Dumper(writer, {}, kernel_sites([*points.values()], globs))
        for step in range(2):
            given = [r for r in dump.records if (r.step, r.when, r.kernel) == (step, "before", None)]
            eager_call(dumper, points[given[0].entry_point], weights, {r.name: dump.load(r) for r in given})
    eager = read_dump(directory)
    expected = {record.key: record for record in eager.records if record.kernel is not None}
    actual = {record.key: record for record in dump.records if record.kernel is not None}
    assert set(expected) == set(actual)
    for key, record in actual.items():
        other = expected[key]
        assert [getattr(record, fact) for fact in _KERNEL] == [getattr(other, fact) for fact in _KERNEL]
        mine, theirs = dump.load(record).astype(np.float64), eager.load(other).astype(np.float64)
        if record.dtype == "i8" and mine.ndim == 3:
            mine, theirs = (planes[:, 0] * PLANE_BASE + planes[:, 1] for planes in (mine, theirs))
        finite = np.abs(theirs) < 1e20  # a bias of masked scores is -1e30
        most, error = (np.abs(values[finite]).max(initial=0.0) for values in (theirs, mine - theirs))
        # Integers are parts of the largest of a block, which may be small, and a sum is of 32 of them.
        near = {"i8": 6e-2, "i32": 0.5}.get(record.dtype, 3e-2)
        assert error <= near * most, record.name
    return [*actual.values()]


def test_the_eager_context_has_the_same_tensors_of_kernels(bundle: Path, dump: Dump, tmp_path: Path) -> None:
    assert _check_with_eager(bundle, _points(bundle), dump, tmp_path / "eager")


def test_calls_in_loops_count_their_iterations(tmp_path: Path) -> None:
    def repeated(ctx: Any, x: Any, w: Any) -> dict[str, Any]:
        (y,) = ctx.ops.fori_loop(3, lambda i, value: (ctx.ops.linear(value, w),), (x,))
        return {"y": y}

    specs = {"x": TensorSpec((4, 8), "f16"), "w": TensorSpec((8, 8), "f16")}
    point = EntryPoint("main", repeated, tuple(Argument(name, spec) for name, spec in specs.items()))
    sites, text = kernel_sites([point], ["*"]), tmp_path / "m.mlir"
    with text.open("w") as file:
        lower_module(
            [point],
            file.write,
            ExternalParameters(),
            block_functions=False,
            tags=TagSelection(["*"]),
            trace_kernels=True,
        )
    compile_module(text, tmp_path / "m.vmfb", target="llvm-cpu")
    rng = np.random.default_rng(3)
    inputs = {name: rng.standard_normal(spec.shape).astype(np.float16) for name, spec in specs.items()}
    dumps = []
    for context in ("device", "eager"):
        with DumpWriter(tmp_path / context, level=2, source={"context": context}) as writer:
            dumper = Dumper(writer, {}, sites)
            if context == "eager":
                eager_call(dumper, point, None, inputs)
            else:
                dumper.call("main")
                with Session(tmp_path / "m.vmfb", "local-task", dumper=dumper.kernels()) as session:
                    session.function("kernels.main")(*inputs.values())
        dump = read_dump(tmp_path / context)
        dumps.append({record.key: dump.load(record) for record in dump.records if record.kernel is not None})
    device, eager = dumps
    assert set(device) == set(eager)
    assert {iteration for *_, iteration in device} == {0, 1, 2}
    for key, array in device.items():
        np.testing.assert_allclose(array, eager[key], rtol=2e-2, atol=2e-2)


def test_the_manifest_says_that_a_second_module_was_needed_and_agrees(bundle: Path, dump: Dump) -> None:
    assert dump.source["second_module"] is True
    files = {"local-task": ("module.llvm-cpu.vmfb", "module.debug.llvm-cpu.vmfb"), "cpu": (ARTIFACT, DEBUG_MODULE)}
    plain, debug = files[dump.source["device"]]
    assert dump.source["module"] == debug
    rows = {(row["module"], row["entry_point"], row["function"]): row for row in dump.agreement}
    assert set(rows) == {
        (file, name, function)
        for name in ("prefill", "decode")
        for file, function in ((plain, name), (debug, f"kernels.{name}"))
    }
    for row in rows.values():
        assert row["calls"] == 1
        assert row["max_rel"] <= row["tolerance"]


@pytest.mark.parametrize(("level", "kernels", "payloads"), [(1, False, False), (3, True, False)])
def test_levels_and_limits(bundle: Path, dump: Dump, tmp_path: Path, level: int, kernels: bool, payloads: bool) -> None:
    other = _dump(bundle, tmp_path / "dump", level)
    records = [record for record in other.records if record.kernel is not None]
    wanted = [record.key for record in dump.records if record.kernel is not None]
    assert [record.key for record in records] == (wanted if kernels else [])
    assert any(record.file for record in records) == payloads


def test_limits_of_payloads_are_those_of_tags(bundle: Path, tmp_path: Path) -> None:
    dump = _dump(bundle, tmp_path / "dump", 2, DumpLimits(300, 4000))
    records = [record for record in dump.records if record.kernel is not None]
    assert {record.dropped for record in records} >= {"tensor_limit", "total_limit"}
    assert all(record.bytes <= 300 for record in records if record.file is not None)


def test_a_signature_that_is_not_the_kernels_is_an_error(bundle: Path, tmp_path: Path) -> None:
    opened = Bundle(bundle)
    debug = opened.config.debug
    assert debug is not None
    debug.kernels["decode"][0].before[0] = dataclasses.replace(debug.kernels["decode"][0].before[0], direction="INOUT")
    with (
        pytest.raises(DescriptionError, match=r"debug: decode: call 'model.layers.0.block' has the directions \['INO"),
        dumping(opened, tmp_path / "dump", device="local-task", level=2),
    ):
        pass


@pytest.mark.parametrize("change", [lambda site: site.before.pop(), lambda site: site.before.reverse()])
def test_payloads_that_are_not_those_of_the_signature_are_an_error(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    opened = Bundle(bundle)
    debug = opened.config.debug
    assert debug is not None
    change(debug.kernels["prefill"][0])
    monkeypatch.setattr("tapeline.bundle._debug.DebugConfig.check_kernels", lambda *_: None)
    with (
        pytest.raises(DescriptionError, match=r"traced 15 tensors before 'model.layers.0.block' .* the bundle's desc"),
        dumping(opened, tmp_path / "dump", device="local-task", level=2) as dumper,
        opened.session("local-task", dumper) as session,
    ):
        _run(opened, session)


def test_a_call_whose_tensors_never_come_is_an_error(bundle: Path, tmp_path: Path) -> None:
    opened = Bundle(bundle)
    debug = opened.config.debug
    assert debug is not None
    sites = debug.kernels["prefill"]
    sites.append(dataclasses.replace(sites[0], name="model.layers.7.block"))
    with (
        pytest.raises(DescriptionError, match=r"call 'model.layers.7.block' .* came 0 times, expected 1"),
        dumping(opened, tmp_path / "dump", device="local-task", level=2) as dumper,
        opened.session("local-task", dumper) as session,
    ):
        _run(opened, session)


def test_modules_that_do_not_agree_are_an_error(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapeline.bundle._bundle.tolerance_of", lambda _: -1.0)
    with pytest.raises(VerificationError, match=r"result 'logits' of 'prefill' in module\.llvm-cpu\.vmfb differs from"):
        _dump(bundle, tmp_path / "dump", 2)
    assert not read_dump(tmp_path / "dump").complete


def test_a_glob_may_name_tensors_of_kernels_alone(bundle: Path, tmp_path: Path) -> None:
    points = [*_points(bundle).values()]
    sites = kernel_sites(points, ["*.q_proj.packed_linear.result0"])
    assert [site.name for site in sites["decode"]] == [
        f"model.layers.{i}.self_attn.q_proj.packed_linear" for i in range(_CASE.config["num_hidden_layers"])
    ]
    first = sites["decode"][0]
    assert [tensor.selected for tensor in (*first.before, *first.after)] == [False] * 4 + [True]
    with pytest.raises(InputError, match=r"tags '\*\.packed_liner\.\*': no tensor of the model has such a name"):
        kernel_sites(points, ["*.packed_liner.*"])
