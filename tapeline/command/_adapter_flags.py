"""LoRA adapters that the flags of ``tapeline serve`` name."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from lang_core import InputError, near_names
from tapeline.cli import user_path
from transformer_core.checkpoints import Adapter

_LEAST_COUNT: Final = 4
_LEAST_RANK: Final = 16


class NamedAdapter(NamedTuple):
    """Adapter that requests may choose.

    Attributes:
        model: name of its model; None for the only one.
        name: name of the adapter.
        path: directory of PEFT.
    """

    model: str | None
    name: str
    path: Path


def parse_named_adapter(text: str) -> NamedAdapter:
    """Returns the parts of ``NAME=DIR`` or ``MODEL:NAME=DIR``.

    Raises:
        InputError: a part is missing, or the directory does not exist.
    """
    named, equals, path = text.partition("=")
    model, colon, name = named.rpartition(":")
    if not equals or not name.strip() or not path or (colon and not model):
        raise InputError(f"adapter={text}: expected NAME=DIR, or MODEL:NAME=DIR with several models")
    directory = user_path(path)
    if not directory.is_dir():
        raise InputError(f"adapter={text}: {directory} is not a directory: name one with an adapter of PEFT")
    return NamedAdapter(model if colon else None, name, directory)


def adapters_of(adapters: Sequence[NamedAdapter], model: str, *, alone: bool) -> dict[str, Path]:
    """Returns the directories of a model's adapters by name.

    Args:
        adapters: all adapters.
        model: name of the model.
        alone: True if there is no other model.

    Raises:
        InputError: two adapters have one name, or an adapter that names no model goes with several.
    """
    for one in adapters:
        if one.model is None and not alone:
            raise InputError(f"adapter={one.name}=...: there are several models: give MODEL:{one.name}=DIR")
    paths: dict[str, Path] = {}
    for one in adapters:
        if one.model not in (None, model):
            continue
        if one.name in paths:
            raise InputError(f"adapter={one.name}=...: two adapters have this name: rename one")
        if one.name == model:
            raise InputError(f"adapter={one.name}=...: the model has this name: rename the adapter")
        paths[one.name] = one.path
    return paths


def refuse_other_models(adapters: Iterable[NamedAdapter], models: Sequence[str]) -> None:
    """Refuses adapters of models that are not served.

    Raises:
        InputError: there is one.
    """
    for one in adapters:
        if one.model is not None and one.model not in models:
            raise InputError(
                f"adapter={one.model}:{one.name}=...: model {one.model!r} not found; available: {', '.join(models)}"
                f"{near_names(one.model, models)}"
            )


def table_sizes(adapters: Mapping[str, Path]) -> tuple[int, int]:
    """Returns the number and the greatest rank of adapters that a bundle is exported for, with room for more.

    Raises:
        CheckpointError: an adapter is damaged.
        ConfigError: an adapter is of a kind that is not supported.
    """
    ranks = [_LEAST_RANK]
    for path in adapters.values():
        with Adapter(path) as adapter:
            ranks += [module.rank for module in adapter.ranks.values()]
    return max(_LEAST_COUNT, len(adapters)), max(ranks)
