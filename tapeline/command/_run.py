"""Runs one entry point of a bundle on arrays.

run --bundle DIR --entry_point forward --input token_ids=FILE.npy --output_dir DIR
"""

from typing import Final

from absl import flags

from run_iree import DEVICES
from tapeline import cli
from tapeline.bundle import Bundle
from tapeline.running import dumper_of, read_inputs, write_results

FLAGS: Final = flags.FlagValues()

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "The bundle's directory.", required=True, flag_values=FLAGS)
_ENTRY_POINT: Final = flags.DEFINE_string("entry_point", "forward", "The entry point.", flag_values=FLAGS)
_INPUT: Final = flags.DEFINE_multi_string("input", [], "NAME=FILE.npy, once per argument.", flag_values=FLAGS)
_OUTPUT_DIR: Final = flags.DEFINE_string(
    "output_dir", None, "Where <result name>.npy goes.", required=True, flag_values=FLAGS
)
_DEVICE: Final = flags.DEFINE_enum("device", "local-task", list(DEVICES), "The device.", flag_values=FLAGS)
_DUMP: Final = flags.DEFINE_string(
    "dump", None, "Dump tensors into this directory, new or empty (docs/dump.md).", flag_values=FLAGS
)
_DUMP_LEVEL: Final = flags.DEFINE_integer(
    "dump_level",
    None,
    "0 nothing, 1 tags (the default), 2 also arguments and results, 3 figures of all of them.",
    flag_values=FLAGS,
)
_DUMP_LIMIT: Final = flags.DEFINE_string(
    "dump_limit",
    "256MiB,16GiB",
    "The largest tensor that is written, and how much in all; none is no limit.",
    flag_values=FLAGS,
)


def main() -> None:
    """Runs the entry point and prints the files that it wrote."""
    bundle = Bundle(cli.user_path(_BUNDLE.value))
    entry_point = bundle.entry_point(_ENTRY_POINT.value)
    values = read_inputs(entry_point, _INPUT.value)
    with (
        dumper_of(bundle, _DEVICE.value, _DUMP.value, _DUMP_LEVEL.value, _DUMP_LIMIT.value) as dumper,
        bundle.session(_DEVICE.value, dumper) as session,
    ):
        tensors = session.function(entry_point.name)(*values)
        names = [result.name for result in entry_point.results]
        results = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    for path in write_results(cli.user_path(_OUTPUT_DIR.value), results):
        print(path)
