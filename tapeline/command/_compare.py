"""Compares two computations and names where the one first departs from the other.

compare --found DUMP --reference DUMP        two dumps
compare --found BUNDLE --reference BUNDLE    two bundles, run on the same inputs
compare --found BUNDLE --reference eager     a bundle, and its model in the eager context
"""

import contextlib
import json
from pathlib import Path
from typing import Final

import numpy as np
from absl import flags

from compile_hlo.directions import Signature
from lang_core import InputError, VerificationError
from run_iree import DEVICES
from run_iree.dump import MANIFEST, read_dump
from tapeline import cli
from tapeline.bundle import Bundle
from tapeline.compare import Comparison, compare_dumps, comparison_text
from tapeline.divergence import INSIDE, DeviceSide, Side, check_alike, compare_runs, eager_side
from tapeline.drawing import check_picture, write_picture
from tapeline.exporting import open_source
from tapeline.running import read_inputs

EAGER: Final = "eager"

FLAGS: Final = flags.FlagValues()

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
_DEVICE: Final = flags.DEFINE_enum("device", "local-task", list(DEVICES), "Where --found runs.", flag_values=FLAGS)
_REFERENCE_DEVICE: Final = flags.DEFINE_enum(
    "reference_device",
    None,
    list(DEVICES),
    "Where a bundle as --reference runs; where --found does by default.",
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
_FORMAT: Final = flags.DEFINE_enum(
    "format", "text", ["text", "json"], "For a person, or for a program.", flag_values=FLAGS
)
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
    if _FORMAT.value == "json":
        print(json.dumps(comparison.as_json(), indent=2))
    else:
        print(comparison_text(comparison, every=_EVERY.value), end="")
    if picture is not None:
        write_picture(comparison, picture)
    if comparison.first is not None:
        raise VerificationError(comparison.divergence())


def _compared() -> Comparison:
    path = cli.user_path(_FOUND.value)
    if (path / MANIFEST).is_file():
        return _dumps(path)
    bundle = Bundle(path)
    with contextlib.ExitStack() as stack:
        reference = _reference_side(bundle, stack)
        side = DeviceSide(bundle, stack.enter_context(bundle.session(_DEVICE.value)))
        calls, given = _calls(bundle)
        vocabulary = int(bundle.config.model.get("vocabulary", 0))
        options = {"tolerance": _TOLERANCE.value, "inside": _INSIDE.value}
        return compare_runs(side, reference, calls, vocabulary, given=given, **options)


def _dumps(path: Path) -> Comparison:
    if _REFERENCE.value == EAGER:
        raise InputError(f"--found={_FOUND.value} is a dump: give another dump as --reference")
    dumps = read_dump(path), read_dump(cli.user_path(_REFERENCE.value))
    for dump in dumps:
        if not dump.complete:
            cli.say(f"warning: {dump.directory} ends early: {dump.error}")
    return compare_dumps(*dumps, _TOLERANCE.value)


def _reference_side(bundle: Bundle, stack: contextlib.ExitStack) -> Side:
    if _REFERENCE.value == EAGER:
        weights = None
        if _MODEL.value is not None:
            source = open_source(_MODEL.value, cli.user_path(_MODEL.value), True)
            weights = stack.enter_context(source).weights
        return stack.enter_context(eager_side(bundle, weights))
    path = cli.user_path(_REFERENCE.value)
    if (path / MANIFEST).is_file():
        raise InputError(f"--found={_FOUND.value} is a bundle, --reference={_REFERENCE.value} a dump: give two alike")
    reference = Bundle(path)
    check_alike(bundle, reference)
    return DeviceSide(reference, stack.enter_context(reference.session(_REFERENCE_DEVICE.value or _DEVICE.value)))


def _calls(bundle: Bundle) -> tuple[list[Signature], dict[str, np.ndarray]]:
    if _ENTRY_POINT.value is None:
        if _INPUT.value:
            raise InputError("--input is for one entry point: name it with --entry_point")
        return bundle.config.entry_points, {}
    call = bundle.entry_point(_ENTRY_POINT.value)
    values = read_inputs(call, _INPUT.value) if _INPUT.value else []
    return [call], {argument.name: np.asarray(value) for argument, value in zip(call.arguments, values, strict=False)}
