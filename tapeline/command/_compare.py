"""Compares two computations and names where the one first departs from the other.

compare --found DUMP --reference DUMP        two dumps
compare --found BUNDLE --reference BUNDLE    two bundles, run on the same inputs
compare --found BUNDLE --reference eager     a bundle, and its model in the eager context
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
OPERANDS: Final = (("found",), ("reference",))

_FOUND: Final = flags.DEFINE_string(
    "found", None, "A dump's or a bundle's directory.", required=True, flag_values=FLAGS
)
_REFERENCE: Final = flags.DEFINE_string(
    "reference",
    EAGER,
    "What it should be like: another of the same kind, or eager for the bundle's own model.",
    flag_values=FLAGS,
)
_MODEL: Final = flags.DEFINE_string(
    "model",
    None,
    "Where the eager context has its weights from: as for export; by default from the bundle.",
    flag_values=FLAGS,
)
_PLACE: Final = define_place_flags(FLAGS)
_REFERENCE_ENGINE: Final = flags.DEFINE_enum(
    "reference_engine",
    None,
    list(engine_names()),
    "What runs a bundle as --reference; what runs --found by default.",
    flag_values=FLAGS,
)
_REFERENCE_DEVICE: Final = define_choice(
    "reference_device",
    None,
    all_devices(),
    "Where a bundle as --reference runs; where --found does by default.",
    further=device_aliases(),
    flag_values=FLAGS,
)
_ENTRY_POINT: Final = flags.DEFINE_string("entry_point", None, "Only this one of the entry points.", flag_values=FLAGS)
_INPUT: Final = flags.DEFINE_multi_string(
    "input", [], "NAME=FILE.npy, for --entry_point; made up by default.", flag_values=FLAGS
)
_TOLERANCE: Final = flags.DEFINE_float(
    "tolerance",
    None,
    "Relative to a tensor's largest value; that of the coarsest dtype by default.",
    lower_bound=0.0,
    flag_values=FLAGS,
)
_INSIDE: Final = flags.DEFINE_enum(
    "inside",
    "auto",
    list(INSIDE),
    "Compare tagged tensors and ops of bundles: of the first call whose results diverge, of all calls, or never.",
    flag_values=FLAGS,
)
_FORMAT: Final = FormatFlag(FLAGS)
_EVERY: Final = flags.DEFINE_bool("every", False, "A line per tensor, rather than per block.", flag_values=FLAGS)
_PICTURE: Final = flags.DEFINE_string(
    "picture", None, "Draw the errors over the blocks into this file (.png, .svg).", flag_values=FLAGS
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
    path = cli.user_path(_FOUND.value)
    if is_dump(path):
        if _REFERENCE.value == EAGER:
            raise InputError(f"--found={_FOUND.value} is a dump: give another dump as --reference")
        return tapeline.compare_dumps(path, cli.user_path(_REFERENCE.value), _TOLERANCE.value, progress=_warn)
    reference = None if _REFERENCE.value == EAGER else cli.user_path(_REFERENCE.value)
    if reference is not None and is_dump(reference):
        raise InputError(f"--found={_FOUND.value} is a bundle, --reference={_REFERENCE.value} a dump: give two alike")
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
    """Returns what the flags say; weights are not compared with their hash unless a flag asks for that."""
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
