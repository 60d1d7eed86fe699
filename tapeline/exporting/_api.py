"""Export as a function call."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from lang_core import near_keywords
from tapeline.bundle import Bundle, PhaseMeter
from tapeline.cli import Progress, no_progress
from tapeline.exporting._dry_run import dry_run
from tapeline.exporting._export import run_export
from tapeline.exporting._options import ExportKeywords, ExportOptions, export_options
from tapeline.exporting._replacing import check_same_export


@near_keywords
def export(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    progress: Progress = no_progress,
    base: str | os.PathLike[str] = "",
    **options: Unpack[ExportKeywords],
) -> Bundle:
    """Writes a verified bundle of a model.

    ``output`` is a complete bundle afterwards, or unchanged.

    Args:
        model: Hugging Face directory, ``.gguf`` file, name of the hub (``org/name[@revision]``,
            ``org/name:Q4_K_M``), or ``demo`` for the built-in model.
        output: directory of the bundle.
        progress: receives steps, warnings and bytes written; ``print`` shows them.
        base: directory that relative paths start from; the current one by default.
        **options: fields of ``ExportOptions``.

    Returns:
        The bundle.

    Raises:
        InputError: model, options or output directory are wrong, or the memory budget does not suffice.
        CompileError: a target's compiler refuses the module.
        VerificationError: the bundle's results differ from the model's.

    Example::

        bundle = tapeline.export("demo", "tapeline-demo", sequence=32, target=["llvm-cpu"], progress=print)
        print(bundle.path, [entry_point.name for entry_point in bundle.config.entry_points])
    """
    return export_early(model, output, None, progress=progress, base=base, **options)


def export_early(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    on_unverified: Callable[[Path], object] | None,
    *,
    progress: Progress = no_progress,
    base: str | os.PathLike[str] = "",
    **options: Unpack[ExportKeywords],
) -> Bundle:
    """Writes a verified bundle of a model, and shows the bundle before it is verified.

    Args:
        model: as for ``export``, and so are the other arguments and errors.
        output: directory of the bundle.
        on_unverified: as for ``run_export``.
        progress: receives steps, warnings and bytes written.
        base: directory that relative paths start from.
        **options: fields of ``ExportOptions``.
    """
    chosen = _options(model, output, base, options)
    run_export(chosen, Path(base, model), PhaseMeter(), progress, Path(base), on_unverified)
    bundle = Bundle(chosen.output)
    bundle.checks.note_exported()
    return bundle


@near_keywords
def predict_export(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    progress: Progress = no_progress,
    base: str | os.PathLike[str] = "",
    hardware: str | None = None,
    **options: Unpack[ExportKeywords],
) -> dict[str, Any]:
    """Predicts sizes, peak memory and disk of an export; reads headers only and writes nothing.

    Args:
        model: as for ``export``, and so are the other arguments.
        output: directory of the bundle.
        progress: receives warnings.
        base: directory that relative paths start from.
        hardware: name of a preset (``h100-sxm``) or a TOML file with the figures of a device: the prediction then has
            times on the devices of ``mesh`` (docs/planning.md).
        **options: fields of ``ExportOptions``.

    Returns:
        Nodes, parameters, bytes per file, peak memory per phase and disk, as JSON values; with ``mesh`` or ``hardware``
        also ``devices``: bytes per device, exchanges, least times, the largest batch.

    Raises:
        InputError: the export itself would fail before it writes.
    """
    chosen = _options(model, output, base, options)
    return dry_run(chosen, Path(base, model), PhaseMeter(), progress, Path(base), hardware)


def check_unnamed(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] = "",
    **options: Unpack[ExportKeywords],
) -> None:
    """Checks that an export into a default directory does not replace another bundle.

    Args:
        model: as for ``export``, and so are base and options.
        output: directory of the bundle.
        base: directory that relative paths start from.
        **options: fields of ``ExportOptions``.

    Raises:
        InputError: a bundle of another model, or of other settings, is there.
    """
    check_same_export(_options(model, output, base, options), Path(base, model))


def _options(
    model: str | os.PathLike[str], output: str | os.PathLike[str], base: str | os.PathLike[str], given: ExportKeywords
) -> ExportOptions:
    options = export_options(os.fspath(model), Path(base, output), given)
    paths = {name: path for name in ("calibration", "report") if (path := getattr(options, name)) is not None}
    return replace(options, **{name: Path(base, path) for name, path in paths.items()})
