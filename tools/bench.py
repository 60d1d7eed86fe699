"""Measures speed and memory, beside peers, in fresh processes.

bench --suite all --checkpoint DIR --write_docs docs/benchmarks.md
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from absl import flags

from lang_core import InputError, near_names
from tools import cli
from tools.benching.suites import SUITES, Plan, Run, Runner, as_text, run_suite, tiny_plan, write_docs, write_json

_SUITE: Final = flags.DEFINE_list("suite", "all", f"A comma list of {', '.join(SUITES)}; or all.")
_ROUNDS: Final = flags.DEFINE_integer("rounds", 5, "How often each measurement is repeated.", lower_bound=1)
_SIZES: Final = flags.DEFINE_enum("sizes", "full", ["full", "tiny"], "tiny: only to see that everything works.")
_OUTPUT: Final = flags.DEFINE_string("output", None, "Write all figures here, as JSON.")
_WRITE_DOCS: Final = flags.DEFINE_string(
    "write_docs", None, "Replace the measured suites' sections of this file, which is docs/benchmarks.md."
)
_WORKDIR: Final = flags.DEFINE_string(
    "workdir", None, "Where to put temporary files, 10 GB or more; the machine's folder for such where not given."
)
_CHECKPOINT: Final = flags.DEFINE_string(
    "checkpoint", None, "A Hugging Face directory whose whole export the suite streaming measures; make_checkpoint."
)


def _suites() -> list[str]:
    if _SUITE.value == ["all"]:
        return list(SUITES)
    for name in _SUITE.value:
        if name not in SUITES:
            known = ", ".join([*SUITES, "all"])
            raise InputError(f"--suite={name}: unknown: there are {known}{near_names(name, SUITES)}")
    if not _SUITE.value:
        raise InputError(f"--suite= names nothing: name some of {', '.join(SUITES)}, or all")
    return _SUITE.value


def _plan() -> Plan:
    checkpoint = cli.user_path(_CHECKPOINT.value).absolute() if _CHECKPOINT.value else None
    if checkpoint is not None and not (checkpoint / "config.json").is_file():
        raise InputError(f"--checkpoint={checkpoint}: there is no config.json: give a Hugging Face directory")
    return tiny_plan(checkpoint) if _SIZES.value == "tiny" else replace(Plan(), checkpoint=checkpoint)


def _workdir() -> Path | None:
    if _WORKDIR.value is None:
        return None
    path = cli.user_path(_WORKDIR.value).absolute()
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise InputError(f"--workdir={path}: no directory that can be written: make it, or name another")
    return path


def _command(suite: str) -> str:
    flags = [f"--suite {suite}", f"--rounds {_ROUNDS.value}"]
    if _SIZES.value != "full":
        flags.append(f"--sizes {_SIZES.value}")
    if _CHECKPOINT.value and suite == "streaming":
        flags.append("--checkpoint DIR")
    return f"bazel run //tools:bench -- {' '.join(flags)}"


def main() -> None:
    """Measures, prints tables, and writes what was asked for."""
    suites, plan, above = _suites(), _plan(), _workdir()
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="tapeline-bench-", dir=above) as workdir:
        runner = Runner(_ROUNDS.value, Path(workdir), cli.say)
        for suite in suites:
            cli.say(f"suite {suite} ...")
            runs.append(run_suite(suite, runner, plan, _command(suite)))
            print(as_text(runs[-1]), flush=True)
            if _WRITE_DOCS.value:
                write_docs(cli.user_path(_WRITE_DOCS.value), runs[-1:])
            if _OUTPUT.value:
                write_json(cli.user_path(_OUTPUT.value), runs)


if __name__ == "__main__":
    cli.run(main)
