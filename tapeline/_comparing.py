"""Comparison of a bundle with another one, or with its model in the eager context."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from lang_core import InputError, MeshShape, checked_choices, encoding_named
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle, Verify
from tapeline.compare import Comparison
from tapeline.divergence import DeviceSide, Side, check_alike, compare_runs, eager_side
from tapeline.exporting import open_source


@checked_choices
def compare_bundles(
    bundle: Bundle | str | os.PathLike[str],
    reference: Bundle | str | os.PathLike[str] | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] = "",
    engine: str = "iree",
    device: str | None = None,
    mesh: MeshShape | str | None = None,
    checkpoint: Path | None = None,
    reference_engine: str | None = None,
    reference_device: str | None = None,
    entry_point: str | None = None,
    inputs: Mapping[str, np.ndarray | int] | None = None,
    tolerance: float | None = None,
    inside: Literal["auto", "always", "never"] = "auto",
    verify: Verify = "sizes",
    trust_compiled: bool = False,
) -> Comparison:
    """Runs a bundle and its reference on the same inputs, and compares their results and diverging inner tensors.

    Args:
        bundle: bundle to compare, or its directory.
        reference: bundle to compare with; the bundle's own model in the eager context if None.
        model: model with the weights for the eager context, as for ``export``; None for the bundle's archive.
        base: directory that a relative path of ``model`` starts from.
        engine: engine of the bundle, ``iree``, ``jax`` or one that was registered.
        device: device of the bundle; the engine's default if None.
        mesh: axes of devices over which JAX cuts the bundle, such as ``tp=2``; one device if None.
        checkpoint: directory of the weights of a bundle that was exported without; see ``tapeline.load``.
        reference_engine: engine of the reference; that of the bundle if None.
        reference_device: device of the reference; that of the bundle in the same engine if None.
        entry_point: only this entry point; all of them if None.
        inputs: arguments of ``entry_point`` by name, of its specs' shapes; example inputs for those that are missing.
        tolerance: relative to a tensor's largest value; that of the coarsest dtype if None.
        inside: calls with inner tensors to compare: the first that diverges (``auto``), ``always`` or ``never``.
        verify: when the weights are compared with their hash, as for ``tapeline.load``; by default they are not, so
            that a wrong weight is found and named.
        trust_compiled: True runs compiled modules that this user did not compile; see ``tapeline.load``.

    Returns:
        The comparison; ``first`` is the first tensor that diverges, or None.

    Raises:
        InputError: a directory is not a bundle, the bundles are of other sizes, or inputs do not fit.
        DeviceError: a device is absent, or a file is damaged.

    Example::

        comparison = tapeline.compare_bundles("tapeline-demo")
        print(comparison.first or "all agree")
    """
    ours = _opened(bundle)
    with contextlib.ExitStack() as stack:
        other = None if reference is None else _opened(reference)
        place = Place(
            engine, device, MeshShape.parse(mesh) if isinstance(mesh, str) else mesh, checkpoint, verify, trust_compiled
        )
        same = reference_engine is None or reference_engine == engine
        other_device = reference_device or (device if same else None)
        other_place = Place(reference_engine or engine, other_device, verify=verify, trust_compiled=trust_compiled)
        side = _reference(ours, other, model, base, other_place, stack)
        actual = DeviceSide(ours, stack.enter_context(open_session(ours, place)))
        if entry_point is None and inputs:
            raise InputError("`inputs` are for one entry point: name it with `entry_point`")
        calls = ours.config.entry_points if entry_point is None else [ours.entry_point(entry_point)]
        given = {name: np.asarray(value) for name, value in (inputs or {}).items()}
        vocabulary = int(ours.config.model.get("vocabulary", 0))
        encoding = ours.config.model.get("caching", {}).get("kv_cache")
        comparison = compare_runs(
            actual,
            side,
            calls,
            vocabulary,
            tolerance=tolerance,
            given=given,
            inside=inside,
            kv_cache=None if encoding is None else encoding_named(encoding),
        )
    for compared in filter(None, (ours, other)):
        compared.checks.wait()
    return comparison


def _opened(bundle: Bundle | str | os.PathLike[str]) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else Bundle(Path(bundle))


def _reference(
    bundle: Bundle,
    reference: Bundle | None,
    model: str | os.PathLike[str] | None,
    base: str | os.PathLike[str],
    place: Place,
    stack: contextlib.ExitStack,
) -> Side:
    if reference is not None:
        check_alike(bundle, reference)
        return DeviceSide(reference, stack.enter_context(open_session(reference, place)))
    if model is None:
        return stack.enter_context(eager_side(bundle, None))
    source = stack.enter_context(open_source(os.fspath(model), Path(base, model), True))
    return stack.enter_context(eager_side(bundle, source.weights))
