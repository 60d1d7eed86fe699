from pathlib import Path
from typing import Any

import pytest
from absl import flags

import tapeline
from tapeline.backends import Place
from tapeline.cli import no_progress
from tapeline.command._model_flags import define_model_flags
from tapeline.exporting import ExportOptions


@pytest.mark.parametrize(("engine", "targets"), [("iree", ["llvm-cpu"]), ("jax", [])])
def test_an_export_is_for_the_engine_that_runs_it(
    engine: Any, targets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict[str, Any]()
    monkeypatch.setattr(tapeline, "cached_export", lambda name, **options: given.update(options), raising=False)
    values = flags.FlagValues()
    model = define_model_flags(values)
    values(["program", "--dtype=bf16"])
    model.bundle(Place(engine=engine), no_progress, model="demo", slots=2)
    options = {
        name: value for name, value in given.items() if name not in ("progress", "base", "again", "chats", "or_slots")
    }
    chosen = ExportOptions(model="demo", output=Path("x"), **options)
    assert (list(chosen.target), chosen.dtype, chosen.slots) == (targets, "bf16", 2)
