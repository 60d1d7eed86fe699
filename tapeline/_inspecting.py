"""Facts of a bundle and of a model, without running either."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from lang_core import WeightSource, checked_choices, near_keywords
from tapeline.analysis.inspecting import facts, graph_text, model_facts, parameters, stored_tensors
from tapeline.bundle import Bundle
from tapeline.exporting import ModelSource, open_source


@checked_choices
def inspect_bundle(bundle: Bundle | str | os.PathLike[str], *, hashes: bool = True) -> dict[str, Any]:
    """Returns the facts of a bundle: model, entry points, kernels, parameters, files.

    Args:
        bundle: bundle, or its directory.
        hashes: reads all files and compares their SHA-256 with the description's.

    Returns:
        JSON values.

    Raises:
        InputError: the directory is not a bundle, or its manifest is damaged.

    Example::

        print(tapeline.inspect_bundle("tapeline-demo")["parameters"])
    """
    return facts(_opened(bundle), hashes=hashes)


@near_keywords
def inspect_model(model: str | os.PathLike[str], *, base: str | os.PathLike[str] = "") -> dict[str, Any]:
    """Returns the facts of a model before its export: configuration, tokenizer, tensors.

    Args:
        model: Hugging Face directory, ``.gguf`` file, name of the hub, or ``demo``.
        base: directory that a relative path starts from.

    Returns:
        JSON values.

    Raises:
        InputError: the model does not exist or is damaged.
    """
    with _source(model, base) as (source, weights):
        return model_facts(os.fspath(model), source.directory, weights, source.facts)


@near_keywords
def list_parameters(bundle: Bundle | str | os.PathLike[str], glob: str = "*") -> list[dict[str, Any]]:
    """Returns the parameters of a bundle with a path that matches a glob, as JSON values.

    Raises:
        InputError: the directory is not a bundle, or the glob does not match.
    """
    return parameters(_opened(bundle), glob)


@near_keywords
def list_tensors(
    model: str | os.PathLike[str], glob: str = "*", *, base: str | os.PathLike[str] = ""
) -> list[dict[str, Any]]:
    """Returns the stored tensors of a model with a name that matches a glob, as JSON values.

    Args:
        model: Hugging Face directory, ``.gguf`` file, name of the hub, or ``demo``.
        glob: of the tensors' stored names.
        base: directory that a relative path starts from.

    Raises:
        InputError: the model does not exist or is damaged, or the glob does not match.
    """
    with _source(model, base) as (_, weights):
        return stored_tensors(os.fspath(model), weights, glob)


@checked_choices
def draw_graph(bundle: Bundle | str | os.PathLike[str], form: Literal["svg", "dot", "json"] = "svg") -> str:
    """Returns the graph of a bundle's module, with repeated blocks collapsed.

    Args:
        bundle: bundle, or its directory.
        form: ``svg``, ``dot`` or ``json``.

    Raises:
        InputError: the directory is not a bundle, or its module is missing.
    """
    opened = _opened(bundle)
    return graph_text(opened.path, opened.config.entry_points, form)


def _opened(bundle: Bundle | str | os.PathLike[str]) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else Bundle(Path(bundle))


@contextmanager
def _source(model: str | os.PathLike[str], base: str | os.PathLike[str]) -> Iterator[tuple[ModelSource, WeightSource]]:
    with open_source(os.fspath(model), Path(base, model), True, headers_only=True) as source:
        assert source.weights is not None
        yield source, source.weights
