"""tools:export --tune: the flags of the compiler are measured on the bundle."""

import json
from pathlib import Path

import pytest

from lang_core import InputError
from run_iree import target_named
from tapeline.bundle import PhaseMeter
from tapeline.exporting import ExportOptions, run_export
from tests.goldens.cases import CASES
from tests.product._bundles import export, export_case

_CASE = CASES["llama_gqa"]
_SIZES = {"num_layers": 1, "sequence": 3, "entry_points": ("forward",)}


_FLAGS = ((), ("--iree-no-such-flag",), ("--iree-opt-level=O0",))


def test_every_set_of_flags_is_tried_and_the_best_is_in_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("_compile", "_tune"):
        monkeypatch.setattr(f"tapeline.exporting.{module}.CANDIDATE_FLAGS", _FLAGS)
    bundle = export_case(_CASE, tmp_path, tune=True, verify="iree", **_SIZES)
    target = json.loads((bundle / "kernel_config.json").read_text())["targets"]["llvm-cpu"]
    report = json.loads((bundle / "report.json").read_text())
    tried = report["compiled"]["llvm-cpu"]["tuning"]
    assert [tuple(trial["flags"]) for trial in tried] == list(_FLAGS)
    assert [trial["status"] for trial in tried] == ["ok", "failed", "ok"]
    assert "CompileError" in tried[1]["detail"]
    good = {tuple(trial["flags"]): trial["seconds"] for trial in tried if trial["status"] == "ok"}
    added = tuple(target["flags"][len(target_named("llvm-cpu").flags) :])
    assert added in good
    assert not added or good[added] < good[()], "no other flags but such as were faster"
    assert {row["device"] for row in report["verification"]} == {"local-task"}
    assert "tune.llvm-cpu" in report["steps"]
    export(tmp_path / "model", bundle, tune=True, resume=True, verify="iree", **_SIZES)
    assert json.loads((bundle / "kernel_config.json").read_text())["targets"]["llvm-cpu"] == target, (
        "not measured again"
    )
    steps = json.loads((bundle / "report.json").read_text())["steps"]
    assert (steps["tune.llvm-cpu"]["reused"], steps["compile.llvm-cpu"]["reused"]) == (True, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "none", "verify": "parse"}, "`tune` runs the compiled module: it needs a `target`, and `weights`"),
        ({"target": ()}, "`tune` runs the compiled module: it needs a `target`, and `weights`"),
        ({"target": ("llvm-cpu", "vmvx")}, "`tune` with target=vmvx: it has no flags to choose among: tune llvm-cpu"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_export(ExportOptions("demo", tmp_path / "bundle", tune=True, **options), tmp_path, PhaseMeter())
    assert not (tmp_path / "bundle").exists()
