"""Fuzzes the readers of untrusted input, guided by coverage: targets of tests/fuzz, one after the other.

bazel run //tools:fuzz -- --seconds=600 --target=safetensors --target=routes

Corpora and findings are kept in the folder, and a further run goes on with them. The exit code is 1 if there are
findings: an error that is not documented, too much CPU time or memory, a crash.
"""

import os
import sys
from pathlib import Path
from typing import Final

from absl import flags

from tests.fuzz import NAMES, run_target

FLAGS: Final = flags.FlagValues()

_SECONDS: Final = flags.DEFINE_float(
    "seconds", 60.0, "How long to run each target, in seconds.", lower_bound=1, flag_values=FLAGS
)
_RUNS: Final = flags.DEFINE_integer("runs", -1, "Inputs per target; -1 for no limit.", flag_values=FLAGS)
_TARGETS: Final = flags.DEFINE_multi_enum("target", [], NAMES, "Target; all by default.", flag_values=FLAGS)
_FOLDER: Final = flags.DEFINE_string(
    "folder", "~/.cache/tapeline/fuzz", "Folder of corpora and findings.", flag_values=FLAGS
)
_SEED: Final = flags.DEFINE_integer("seed", 1, "Seed of the mutations.", lower_bound=1, flag_values=FLAGS)


def main(argv: list[str]) -> int:
    """Runs the targets and prints their figures; returns the exit code."""
    try:
        operands = FLAGS(argv)[1:]
    except flags.Error as error:
        print(error, file=sys.stderr)
        return 2
    if operands:
        print(f"unexpected operands: {' '.join(operands)}; name targets with --target", file=sys.stderr)
        return 2
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), Path(_FOLDER.value).expanduser()).absolute()
    findings = 0
    for name in _TARGETS.value or NAMES:
        report = run_target(name, folder / name, runs=_RUNS.value, seconds=_SECONDS.value, seed=_SEED.value)
        print(report, flush=True)
        for path in report.findings:
            print(f"  {path}", flush=True)
        findings += len(report.findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
