"""Says what this machine has: versions, CPU and its kernels, devices, memory, caches, the hub's login.

doctor                  tables to read, or to paste into an issue
doctor --format json    the same for a program

It opens no device, asks nothing of the network, and prints no token.
"""

import dataclasses
import json
from typing import Final

from absl import flags

from tapeline.cli import show
from tapeline.machine import diagnose, diagnosis_text

FLAGS: Final = flags.FlagValues()

_FORMAT: Final = flags.DEFINE_enum(
    "format", "text", ["text", "json"], "For a person, or for a program.", flag_values=FLAGS
)


def main() -> None:
    """Prints the facts of this machine."""
    diagnosis = diagnose()
    if _FORMAT.value == "text":
        show(diagnosis_text(diagnosis))
    else:
        print(json.dumps(dataclasses.asdict(diagnosis), indent=2, default=str))
