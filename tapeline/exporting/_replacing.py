"""Replacement of existing bundles by an export."""

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from lang_core import LARGE_JSON_BOUNDS, InputError, file_json, json_value
from tapeline.bundle import MARK, REPORT
from tapeline.exporting._describe import model_name
from tapeline.exporting._load import Export
from tapeline.exporting._options import ExportOptions
from tapeline.hub import parse_hub_name

DEMO: Final = "demo"
_DEMO_BUNDLE: Final = "tapeline-demo"
_GGUF: Final = ".gguf"
_SHARD: Final = re.compile(r"-\d{5}-of-\d{5}$")
_SNAPSHOT: Final = re.compile(r"models--(?:[^/]+--)?(?P<name>[^/]+)/snapshots/[^/]+$")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 100
# Options that leave the bundle's contents as they are, or that say where it is.
_NO_SETTINGS: Final = frozenset(
    {"model", "output", "report", "resume", "overwrite", "max_memory", "verify", "reference_python", "lowering"}
)
# Facts of a model that options of an export do not change.
_SIZES: Final = ("vocabulary", "hidden", "intermediate", "heads", "kv_heads", "head_size")
_SHOWN: Final = 4


def model_title(model: str) -> str:
    """Returns the name of a model's GGUF file, directory or repository, in letters that shells leave alone.

    >>> model_title("models/SmolLM2 (135M).gguf"), model_title("a/b-00001-of-00003.gguf")
    ('SmolLM2-135M', 'b')
    >>> model_title("org/name@v1.0"), model_title("org/name:Q4_K_M")
    ('name', 'name-Q4_K_M')
    """
    hub = parse_hub_name(model) if not Path(model).exists() else None
    if hub is not None:
        name = hub.repository.rpartition("/")[2]
        if hub.file is not None:
            name = _stem(hub.file) if hub.file.endswith(_GGUF) else f"{name}-{hub.file}"
    else:
        path = Path(model)
        snapshot = _SNAPSHOT.search(path.absolute().as_posix())
        name = snapshot["name"] if snapshot is not None else path.name
        name = _stem(name or path.resolve().name) if name not in ("", "..") else path.resolve().name
    return _STRANGE.sub("-", name).strip("-.")[:_LONGEST] or "model"


def default_output(model: str, base: Path) -> str:
    """Returns the directory, relative to ``base``, of a bundle for which none is named.

    It has the model's name; with ``-bundle`` behind it if the model itself lies there.
    """
    if model == DEMO:
        return _DEMO_BUNDLE
    name = model_title(str(base / model) if (base / model).exists() else model)
    place, source = base / name, base / model
    return f"{name}-bundle" if place.exists() and source.exists() and place.samefile(source) else name


def settings_of(options: ExportOptions) -> dict[str, Any]:
    """Returns the options that decide a bundle's contents, as JSON values."""
    fields = {name: value for name, value in asdict(options).items() if name not in _NO_SETTINGS}
    return json_value(json.dumps(fields, default=str), nonfinite=True)


def place_of(options: ExportOptions, model_path: Path) -> str | None:
    """Returns a digest of the path of a model on this machine; None of other models."""
    if options.model == DEMO or not model_path.exists():
        return None
    return hashlib.sha256(str(model_path.resolve()).encode()).hexdigest()[:16]


def check_same_export(options: ExportOptions, model_path: Path) -> None:
    """Checks that a bundle that is there is of the same model with the same settings.

    The command asks for this if the user named no directory.

    Raises:
        InputError: it is another bundle.
    """
    report = _json(options.output / REPORT)
    if options.overwrite or options.resume or not (options.output / MARK).is_file():
        return
    before, model = report.get("settings"), report.get("model", {})
    if not isinstance(before, dict):
        raise InputError(f"output={options.output}: it holds a bundle of {_unknown(options.output)}; {_choose()}")
    place = place_of(options, model_path)
    if place != model.get("place") or (place is None and model.get("name") != options.model):
        raise _another(options, f"{model.get('name')} ({model.get('family')})")
    now = settings_of(options)
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        shown = ", ".join(_setting(name, before.get(name)) for name in changed[:_SHOWN])
        asked = ", ".join(_setting(name, now.get(name)) for name in changed[:_SHOWN])
        more = f" and {len(changed) - _SHOWN} more" if changed[_SHOWN:] else ""
        raise InputError(
            f"output={options.output}: it holds a bundle of {model.get('name')} exported with {shown}{more}, and this "
            f"export is with {asked}{more}; {_choose()}"
        )


def check_replaced(export: Export, model_path: Path) -> None:
    """Checks that an existing bundle is of the same model, or of the earlier contents of the model's path.

    Raises:
        InputError: it is of another model.
    """
    options, config = export.options, export.model.config
    name, family, facts = model_name(options, export.source), config.architecture, config.facts()
    before = _json(options.output / MARK).get("model")
    if options.overwrite or not isinstance(before, dict) or "family" not in before:
        return
    place = place_of(options, model_path)
    if place is not None and place == _json(options.output / REPORT).get("model", {}).get("place"):
        return
    if before.get("name", name) != name or before["family"] != family:
        raise _another(options, f"{before.get('name')} ({before['family']})", f"{name} ({family})")
    for size in _SIZES:
        if size in before and size in facts and before[size] != facts[size]:
            raise _another(options, f"{name} with {size}={before[size]}", f"{name} with {size}={facts[size]}")


def _another(options: ExportOptions, before: str, now: str | None = None) -> InputError:
    return InputError(
        f"output={options.output}: it holds a bundle of another model, {before}, and this export is of "
        f"{now or options.model}; {_choose()}"
    )


def _choose() -> str:
    return "choose another directory as `output`, or replace that bundle with `overwrite`"


def _unknown(output: Path) -> str:
    model = _json(output / MARK).get("model")
    name = model.get("name") if isinstance(model, dict) else None
    return f"{name or 'a model'} by an earlier version, which did not note its settings"


def _setting(name: str, value: Any) -> str:
    if value is None or value == []:
        return f"no `{name}`"
    return f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"


def _json(path: Path) -> dict[str, Any]:
    try:
        document = file_json(path, LARGE_JSON_BOUNDS, nonfinite=True)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _stem(name: str) -> str:
    return _SHARD.sub("", name.removesuffix(_GGUF))
