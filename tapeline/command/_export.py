"""Exports a checkpoint as a verified bundle.

export                  the built-in demo model, to ./tapeline-demo
export MODEL            a Hugging Face directory, a .gguf file or a name on the hub, to a directory of the model's name

An existing bundle of the same model is replaced when the export is complete; for other bundles, see --overwrite.
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from absl import flags

import tapeline
from lang_core import InputError
from tapeline import exporting
from tapeline.analysis.inspecting import GRAPH_FORMATS
from tapeline.analysis.planning import preset_names
from tapeline.bundle import REPORT
from tapeline.cli import TerminalProgress, parse_size, say, user_path
from tapeline.command._flags import as_flags, flag_translator
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.exporting import (
    CHOICES,
    RARE,
    TARGETS,
    ExportKeywords,
    ExportOptions,
    option_texts,
)

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("model",),)

_DRY_RUN: Final = flags.DEFINE_bool(
    "dry_run", False, "Print sizes, operation counts and predicted memory, and write nothing.", flag_values=FLAGS
)
_HARDWARE: Final = flags.DEFINE_string(
    "hardware",
    None,
    f"Device for the predicted times of --dry_run: {', '.join(preset_names())}, or a TOML file.",
    flag_values=FLAGS,
)


def _define(name: str, kind: Any, default: Any, text: str) -> flags.FlagHolder[Any]:
    """Defines the flag of an option: a number, a choice, a switch, or a text that ``_READERS`` reads."""
    kinds = {*get_args(kind)} - {type(None)} or {kind}
    if name == "adapter":
        return flags.DEFINE_multi_string(name, [], text, flag_values=FLAGS)
    if name in CHOICES:
        return flags.DEFINE_enum(name, default, CHOICES[name], text, flag_values=FLAGS)
    if bool in kinds:
        return flags.DEFINE_bool(name, default, text, flag_values=FLAGS)
    if float in kinds:
        return flags.DEFINE_float(name, default, text, flag_values=FLAGS)
    if int in kinds and name not in _READERS:
        return flags.DEFINE_integer(name, default, text, lower_bound=1, flag_values=FLAGS)
    if isinstance(default, tuple):
        default = ",".join(default)
    return flags.DEFINE_string(name, None if name == "output" else default, text, flag_values=FLAGS)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _targets(text: str) -> list[str]:
    names = exporting.canonical_targets(_parts(text))
    exporting.check_names("target", names, TARGETS)
    return [] if list(names) == ["none"] else [*names]


def _tags(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",")] if text else ()


def _graphs(text: str) -> Sequence[str]:
    if not text:
        return ()
    names = _parts(text)
    exporting.check_names("graph", names, GRAPH_FORMATS)
    return names


def _sequence(text: str) -> int:
    if text == "dynamic":
        raise InputError(
            "sequence=dynamic: entry points of dynamic length are not supported yet: give the number of tokens that "
            "one call takes (prefill takes longer prompts in pieces)"
        )
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"sequence={text}: expected a number of tokens above 0")
    return int(text)


_READERS: Final = {
    "calibration": Path,
    "dump_tags": _tags,
    "entry_points": _parts,
    "graph": _graphs,
    "max_memory": lambda text: parse_size("max_memory", text),
    "report": Path,
    "sequence": _sequence,
    "target": _targets,
}
"""Functions that read the text of a flag as the option's value."""

_KINDS: Final = get_type_hints(ExportOptions)
_TEXTS: Final = option_texts()
_HELP: Final = {name: as_flags(text, _TEXTS) for name, text in _TEXTS.items() if name not in RARE}
_OPTIONS: Final = {
    field.name: _define(field.name, _KINDS[field.name], field.default, _HELP.get(field.name, ""))
    for field in fields(ExportOptions)
}
_FORMAT: Final = FormatFlag(FLAGS)


def _value(name: str) -> Any:
    value, read = _OPTIONS[name].value, _READERS.get(name)
    return value if read is None or value is None else read(value)


def main() -> None:
    """Exports, and prints the bundle's path."""
    base, model = user_path(""), _value("model")
    options: ExportKeywords = {name: _value(name) for name in _OPTIONS if name not in ("model", "output")}  # pyright: ignore[reportAssignmentType]
    output = _value("output") or exporting.default_output(model, base)
    if _value("output") is None:
        exporting.check_unnamed(model, output, base=base, **options)
    if _HARDWARE.value and not _DRY_RUN.value:
        raise InputError("hardware: figures of a device are for predictions: add `dry_run`, or leave hardware out")
    with TerminalProgress(flag_translator(FLAGS)) as progress:
        if not _DRY_RUN.value:
            _put_bundle(tapeline.export(model, output, progress=progress, base=base, **options).path)
            return
        prediction = tapeline.predict_export(
            model, output, progress=progress, base=base, hardware=_HARDWARE.value, **options
        )
    if report := _value("report"):
        exporting.write_prediction(prediction, user_path(str(report)))
    if _FORMAT.is_json:
        put_json({"bundle": user_path(output), "predicted": prediction})
    else:
        print(exporting.prediction_text(prediction))
        say(f"--dry_run: nothing was written; without it, the bundle is {user_path(output)}")


def _put_bundle(path: Path) -> None:
    if _FORMAT.is_json:
        put_json({"bundle": path, "report": path / REPORT, **exporting.report_summary(path)})
    else:
        print(path)
