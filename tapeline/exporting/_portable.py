"""The portable artifact of an export."""

from collections.abc import Sequence
from pathlib import Path

from compile_hlo import LoweredModule, lower_module, text_file
from compile_hlo.emit import EXACT_PRODUCTS, PARTITIONED, ArgumentParameters, portable_text
from compile_hlo.portable import write_artifact
from compile_hlo.quirks import QUIRKS
from lang_core import EntryPoint
from tapeline.bundle import ARTIFACT, MODULE


def write_portable(
    entry_points: Sequence[EntryPoint],
    lowered: LoweredModule,
    staging: Path,
    *,
    inline: bool,
    packed: bool,
    partitioned: bool,
    version: str,
) -> None:
    """Writes the portable artifact: the module in StableHLO alone, with its weights as arguments.

    They follow the entry point's own arguments, in the order of kernel_config.json's ``parameters``. The artifact is
    made from the module's text, unless that has the weights inline, or packed, whose products are of integers there, or
    the artifact is to be partitioned over a mesh, and so has forms of its own: then the entry points are lowered again.

    Raises:
        VerificationError: StableHLO refuses it.
    """
    text = staging / "portable.mlir"
    with text_file(text) as file:
        parameters = lowered.parameters()
        if inline or packed or partitioned:
            forms = PARTITIONED if partitioned else EXACT_PRODUCTS if packed else QUIRKS
            lower_module(entry_points, file.write, ArgumentParameters(parameters), streaming=True, overrides=forms)
        else:
            known = {function.name: function.parameters for function in lowered.functions}
            file.writelines(portable_text(staging / MODULE, dict(parameters.items()), known))
    write_artifact(text, staging / ARTIFACT, version)
    text.unlink()
