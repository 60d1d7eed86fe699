"""Runs one entry point of a bundle on arrays.

run --bundle DIR --entry_point forward --input token_ids=FILE.npy --output_dir DIR
"""

from typing import Final

from absl import flags

from compile_hlo.bundle import Bundle
from compile_hlo.iree import DEVICES
from tools import cli
from tools.running import read_inputs, write_results

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "The bundle's directory.", required=True)
_ENTRY_POINT: Final = flags.DEFINE_string("entry_point", "forward", "The entry point.")
_INPUT: Final = flags.DEFINE_multi_string("input", [], "NAME=FILE.npy, once per argument.")
_OUTPUT_DIR: Final = flags.DEFINE_string("output_dir", None, "Where <result name>.npy goes.", required=True)
_DEVICE: Final = flags.DEFINE_enum("device", "local-task", list(DEVICES), "The device.")


def main() -> None:
    """Runs the entry point and prints the files that it wrote."""
    bundle = Bundle(cli.user_path(_BUNDLE.value))
    entry_point = bundle.entry_point(_ENTRY_POINT.value)
    values = read_inputs(entry_point, _INPUT.value)
    with bundle.session(_DEVICE.value) as session:
        tensors = session.function(entry_point.name)(*values)
        names = [result.name for result in entry_point.results]
        results = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    for path in write_results(cli.user_path(_OUTPUT_DIR.value), results):
        print(path)


if __name__ == "__main__":
    cli.run(main)
