"""Compares two computations and reports the first divergence.

compare --actual DUMP --reference DUMP        two dumps
compare --actual BUNDLE --reference BUNDLE    two bundles, run on the same inputs
compare --actual BUNDLE --reference eager     a bundle and its model in the eager context
"""

from typing import Any, Final

import numpy as np
from absl import flags

import tapeline
from lang_core import InputError, VerificationError
from tapeline import cli
from tapeline.analysis.drawing import check_picture, write_picture
from tapeline.backends import all_devices, device_aliases, engine_names
from tapeline.bundle import VERIFY
from tapeline.command._choices import define_choice
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._place_flags import PlaceKeywords, define_place_flags
from tapeline.compare import Comparison, comparison_text, is_dump
from tapeline.divergence import INSIDE
from tapeline.running import read_inputs

EAGER: Final = "eager"

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("actual",), ("reference",))

_ACTUAL: Final = flags.DEFINE_string(
    "actual", None, "Dump or bundle directory to check.", required=True, flag_values=FLAGS
)
_REFERENCE: Final = flags.DEFINE_string(
    "reference",
    EAGER,
    "Reference: another directory of the same kind, or eager for the bundle's own model on the eager context.",
    flag_values=FLAGS,
)
_MODEL: Final = flags.DEFINE_string(
    "model",
    None,
    "Model that provides the weights of the eager context, as for export. Default: the bundle's weights.",
    flag_values=FLAGS,
)
_PLACE: Final = define_place_flags(FLAGS)
_REFERENCE_ENGINE: Final = flags.DEFINE_enum(
    "reference_backend",
    None,
    list(engine_names()),
    "Backend that runs the bundle of --reference. Default: the backend of --actual.",
    flag_values=FLAGS,
)
_REFERENCE_DEVICE: Final = define_choice(
    "reference_device",
    None,
    all_devices(),
    "Device that runs the bundle of --reference. Default: the device of --actual.",
    further=device_aliases(),
    flag_values=FLAGS,
)
_ENTRY_POINT: Final = flags.DEFINE_string(
    "entry_point", None, "Entry point to compare. Default: all.", flag_values=FLAGS
)
_INPUT: Final = flags.DEFINE_multi_string(
    "input", [], "Input of --entry_point as NAME=FILE.npy. Default: random inputs.", flag_values=FLAGS
)
_TOLERANCE: Final = flags.DEFINE_float(
    "tolerance",
    None,
    "Tolerance, relative to a tensor's largest value. Default: the tolerance of the coarsest dtype.",
    lower_bound=0.0,
    flag_values=FLAGS,
)
_INSIDE: Final = flags.DEFINE_enum(
    "inside",
    "auto",
    list(INSIDE),
    "Comparison of tagged tensors and ops inside the calls: of the first call with diverging results (auto), "
    "always, or never.",
    flag_values=FLAGS,
)
_FORMAT: Final = FormatFlag(FLAGS)
_EVERY: Final = flags.DEFINE_bool(
    "every", False, "Print one line per tensor instead of one per block.", flag_values=FLAGS
)
_PICTURE: Final = flags.DEFINE_string(
    "picture", None, "File (.png or .svg) for a chart of the errors per block.", flag_values=FLAGS
)


def main() -> None:
    """Compares, and prints a table."""
    picture = cli.output_file("picture", _PICTURE.value)
    if picture is not None:
        check_picture(picture)
    comparison = _compared()
    if _FORMAT.is_json:
        put_json(comparison.as_json())
    else:
        print(comparison_text(comparison, every=_EVERY.value), end="")
    if picture is not None:
        write_picture(comparison, picture)
    if comparison.first is not None:
        raise VerificationError(comparison.divergence())


def _compared() -> Comparison:
    path = cli.user_path(_ACTUAL.value)
    if is_dump(path):
        if _REFERENCE.value == EAGER:
            raise InputError(f"--actual={_ACTUAL.value} is a dump: give another dump as --reference")
        return tapeline.compare_dumps(path, cli.user_path(_REFERENCE.value), _TOLERANCE.value, progress=_warn)
    reference = None if _REFERENCE.value == EAGER else cli.user_path(_REFERENCE.value)
    if reference is not None and is_dump(reference):
        raise InputError(f"--actual={_ACTUAL.value} is a bundle, --reference={_REFERENCE.value} a dump: give two alike")
    bundle = tapeline.Bundle(path)
    inside: Any = _INSIDE.value
    return tapeline.compare_bundles(
        bundle,
        reference,
        model=_MODEL.value,
        base=cli.user_path(""),
        **_place(),
        reference_engine=_REFERENCE_ENGINE.value,
        reference_device=_REFERENCE_DEVICE.value,
        entry_point=_ENTRY_POINT.value,
        inputs=_inputs(bundle),
        tolerance=_TOLERANCE.value,
        inside=inside,
    )


def _place() -> PlaceKeywords:
    """Returns the settings of the flags; weights are not compared with their hash unless a flag asks for that."""
    place = _PLACE.keywords()
    if place["verify"] == VERIFY[0]:
        place["verify"] = "sizes"
    return place


def _inputs(bundle: tapeline.Bundle) -> dict[str, np.ndarray | int]:
    if not _INPUT.value:
        return {}
    if _ENTRY_POINT.value is None:
        raise InputError("--input is for one entry point: name it with --entry_point")
    call = bundle.entry_point(_ENTRY_POINT.value)
    names = [argument.name for argument in call.arguments]
    return dict(zip(names, read_inputs(call, _INPUT.value, bundle.path), strict=True))


def _warn(event: tapeline.ProgressEvent) -> None:
    cli.say(str(event))
