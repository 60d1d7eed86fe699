"""The portable artifact of an export."""

from pathlib import Path

from compile_hlo import lower_module, text_file
from compile_hlo.emit import ArgumentParameters, portable_text
from compile_hlo.portable import write_artifact, write_per_device
from compile_hlo.quirks import QUIRKS, XLA_PARTITIONED, XLA_QUIRKS
from tapeline.bundle import ARTIFACT, MODULE, PER_DEVICE
from tapeline.exporting._load import Export, entry_points_of
from tapeline.exporting._mesh import ExportMesh, portable_version
from tapeline.exporting._options import PER_DEVICE_TARGET


def write_portable(export: Export, staging: Path) -> None:
    """Writes the portable artifact: the module in StableHLO alone, with its weights as arguments.

    They follow the entry point's own arguments, in the order of kernel_config.json's ``parameters``. The artifact is
    made from the module's text, unless that has the weights inline, or packed (their products are of integers there),
    or the artifact is to be partitioned over a mesh, with its own forms: then the entry points are lowered again. With
    the target ``stablehlo-per-device``, the program of one device of the mesh is written too.

    Raises:
        VerificationError: StableHLO refuses it.
    """
    text, options, mesh, lowered = staging / "portable.mlir", export.options, export.mesh, export.lowered
    packed = any(parameter.encoding is not None for _, parameter in export.model.named_parameters())
    with text_file(text) as file:
        parameters = lowered.parameters()
        if options.weights == "inline" or packed or mesh is not None:
            forms = XLA_PARTITIONED if mesh is not None else XLA_QUIRKS if packed else QUIRKS
            points, form = export.entry_points, ArgumentParameters(parameters)
            lower_module(points, file.write, form, streaming=True, overrides=forms)
        else:
            known = {function.name: function.parameters for function in lowered.functions}
            file.writelines(portable_text(staging / MODULE, dict(parameters.items()), known))
    write_artifact(text, staging / ARTIFACT, portable_version(options.stablehlo_target_version, mesh))
    if mesh is not None and PER_DEVICE_TARGET in options.target:
        _write_per_device(export, mesh, text, staging / PER_DEVICE)
    text.unlink()


def _write_per_device(export: Export, mesh: ExportMesh, text: Path, output: Path) -> None:
    """Writes the program of one device: of the sequences that are its own, for devices along ``dp`` exchange nothing.

    Args:
        export: the export.
        mesh: its mesh.
        text: the portable module, of all sequences; it is written anew for fewer.
        output: file to write.
    """
    lowered, sequences, whole = export.lowered, mesh.batch // mesh.shape.size_of("dp"), mesh.shape
    if sequences != mesh.batch:
        points = entry_points_of(export, sequences)
        mesh = mesh.of_sequences(points, sequences)
        with text_file(text) as file:
            form = ArgumentParameters(lowered.parameters())
            lowered = lower_module(points, file.write, form, streaming=True, overrides=XLA_PARTITIONED)
    write_per_device(text, output, whole, mesh.axes_by_function(lowered))
