"""The model that a bundle was exported from, as its description says."""

import re
from dataclasses import replace
from typing import Any, Final

from lang_core import Encoding, EntryPoint, InputError, encoding_named
from tapeline.bundle import FORMER_NAMES, Bundle
from tapeline.compare import FORMER_ACTIVATIONS
from transformer_core import DRAFT, STORED, keep_packed
from transformer_core.models import Model, entry_points, load_model

_CACHING: Final = ("positions", "window_caches", "kv_cache", "verify_tokens")
_SIZED: Final = re.compile(r"(forward|packed)_([0-9]+)")  # entry points of further lengths


def model_of(bundle: Bundle) -> tuple[Model[Any], tuple[EntryPoint, ...]]:
    """Returns the exported model, and its entry points at the exported sizes, without reading weights.

    Raises:
        InputError: the bundle's description lacks a field.
    """
    fields = bundle.config.model
    try:
        encoding = fields.get("quantize", "none")
        packed = None if encoding in ("none", STORED) else encoding
        activations = fields.get("activations", FORMER_ACTIVATIONS)
        names = [entry_point.name for entry_point in bundle.config.entry_points]
        model = load_model(
            bundle.path,
            fields["dtype"],
            fields["layers"],
            weights=False,
            quantize=packed,
            activations=activations,
            drafts=DRAFT in names,
        )
        if encoding == STORED:
            keep_packed(model, _encodings(bundle), model.dtype, activations)
        caching = fields.get("caching", {})
        options: dict[str, Any] = {name: fields[name] for name in ("batch", "sequence", "max_sequence")}
        options |= {name: caching[name] for name in _CACHING if name in caching}
        options |= {FORMER_NAMES[name]: caching[name] for name in FORMER_NAMES if name in caching}
        if "slots" in fields:
            options["slots"] = fields["slots"]
            tables = fields.get("adapters")
            options["adapter_rank"] = None if tables is None else tables["rank"]
            options["pages"] = (fields["pages"], fields["page_tokens"]) if "pages" in fields else None
        else:
            sized = [match.groups() for match in map(_SIZED.fullmatch, names) if match]
            options["names"] = [FORMER_NAMES.get(name, name) for name in names if not _SIZED.fullmatch(name)]
            options["lengths"] = [int(length) for kind, length in sized if kind == "forward"]
            options["packed"] = [int(length) for kind, length in sized if kind == "packed"]
    except KeyError as error:
        raise InputError(
            f"{bundle.path}: kernel_config.json lacks the model's {error}: export the bundle again"
        ) from None
    points = entry_points(model, **options)
    return model, tuple(replace(point, name=bundle.known_name(point.name) or point.name) for point in points)


def _encodings(bundle: Bundle) -> dict[str, Encoding]:
    """Returns the encodings of packed parameters, by path."""
    parameters = bundle.config.parameters.items()
    return {path: encoding_named(fields["encoding"]) for path, fields in parameters if "encoding" in fields}
