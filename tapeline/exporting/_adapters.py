"""Adapters of an export: named by the user, opened, described."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from lang_core import InputError
from tapeline.bundle import sha256_of
from tapeline.cli import Progress, ProgressEvent
from tapeline.exporting._source import ModelSource
from tapeline.hub import ModelLocation, resolve_adapter
from transformer_core.checkpoints import Adapter

_FILES: Final = ("adapter_config.json", "adapter_model.safetensors")


class AdapterName(NamedTuple):
    """Adapter as a user names it.

    Attributes:
        name: directory, or name of the hub.
        weight: factor of its update.
    """

    name: str
    weight: float = 1.0


def parse_adapter(text: str, base: Path = Path()) -> AdapterName:
    """Returns the parts of ``DIR[=WEIGHT]``.

    Args:
        text: as the user wrote it; a directory of that very name wins.
        base: directory that relative paths start from.

    Raises:
        InputError: the weight is not a finite number, or the name is missing.

    >>> parse_adapter("style=0.5")
    AdapterName(name='style', weight=0.5)
    """
    name, equals, weight = text.rpartition("=")
    if not equals or Path(base, text).exists():
        name, weight = text, "1"
    try:
        factor = float(weight)
    except ValueError:
        factor = math.nan
    if not name or not math.isfinite(factor):
        raise InputError(f"adapter={text}: expected a directory or a name of the hub, and =WEIGHT if it is not 1")
    return AdapterName(name, factor)


@contextlib.contextmanager
def with_adapters(
    source: ModelSource, adapters: Sequence[str], base: Path, progress: Progress
) -> Iterator[ModelSource]:
    """Yields a model with adapters, which are merged as its weights are read.

    Args:
        source: the model.
        adapters: directories or names of the hub, each with ``=WEIGHT`` if that is not 1.
        base: directory that relative paths start from.
        progress: receives merged adapters, warnings, and downloaded bytes.

    Raises:
        InputError: the adapter does not exist, is damaged or not supported, or the model is opened without weights.
        HubError: the hub does not have it or does not give it.
    """
    if not adapters:
        yield source
        return
    if source.weights is None:
        raise InputError(f"adapter={adapters[0]}: is merged into weights, and weights=none reads none: leave one out")
    with contextlib.ExitStack() as stack:
        opened: list[Adapter] = []
        records: list[dict[str, Any]] = []
        for name, weight in (parse_adapter(text, base) for text in adapters):
            location = resolve_adapter(name, Path(base, name), progress)
            adapter = stack.enter_context(Adapter(location.path, weight))
            _tell(name, adapter, source, progress)
            opened.append(adapter)
            records.append(_record(name, adapter, location))
        told = [(record["weight"], record["sha256"]) for record in records]
        yield replace(
            source,
            adapters=tuple(opened),
            identity=f"{source.identity} {told}",
            facts={**source.facts, "adapters": records},
        )


def _tell(name: str, adapter: Adapter, source: ModelSource, progress: Progress) -> None:
    """Reports the merged adapter, and warns if it was trained on a model of another name."""
    kind = "DoRA" if adapter.config.decomposed else "LoRA"
    ranks = ", ".join(map(str, _ranks(adapter)))
    replaced = f", {len(adapter.replaced)} tensors replaced" if adapter.replaced else ""
    progress(
        ProgressEvent(
            f"adapter {name}: {kind} of rank {ranks or 0} on {len(adapter.low_rank)} modules, weight "
            f"{adapter.weight:g}{replaced}"
        )
    )
    base, model = (_short(text) for text in (adapter.config.base, source.name))
    if base and base != model:
        progress(
            ProgressEvent(
                f"warning: adapter {name} was trained on {adapter.config.base!r}, the model is {source.name!r}"
            )
        )


def _ranks(adapter: Adapter) -> list[int]:
    """Returns the ranks that its modules have, sorted, each once."""
    return sorted({module.rank for module in adapter.ranks.values()})


def _short(name: str) -> str:
    """Returns the last part of a name or path, without revision, file and case."""
    last = name.rstrip("/").rpartition("/")[2]
    return last.partition("@")[0].partition(":")[0].lower()


def _record(name: str, adapter: Adapter, location: ModelLocation) -> dict[str, Any]:
    """Returns an adapter's entry in the report and the manifest."""
    config = adapter.config
    return {
        "name": name,
        "weight": adapter.weight,
        "kind": "dora" if config.decomposed else "lora",
        "ranks": _ranks(adapter),
        "modules": len(adapter.low_rank),
        "replaced": sorted(adapter.replaced),
        "base_model": config.base,
        "sha256": {file: sha256_of(location.path / file) for file in _FILES},
        **({"hub": dict(location.facts)} if location.facts else {}),
    }
