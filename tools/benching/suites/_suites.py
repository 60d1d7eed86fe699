"""All suites by name."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from tools.benching.suites._archive_suite import archive
from tools.benching.suites._decode_suite import decode
from tools.benching.suites._dump_suite import dump
from tools.benching.suites._eager_suite import eager
from tools.benching.suites._embeddings_suite import embeddings
from tools.benching.suites._engines_suite import engines
from tools.benching.suites._figures import SuiteResult
from tools.benching.suites._kernels_suite import kernels
from tools.benching.suites._lowering_suite import lowering
from tools.benching.suites._machine import load_average, this_machine
from tools.benching.suites._pages_suite import pages
from tools.benching.suites._pictures_suite import pictures
from tools.benching.suites._plan import Plan
from tools.benching.suites._recording_suite import recording
from tools.benching.suites._report import Run
from tools.benching.suites._rows_suite import rows
from tools.benching.suites._run import Runner
from tools.benching.suites._serve_suite import serve
from tools.benching.suites._speech_suite import speech
from tools.benching.suites._streaming_suite import streaming

SUITES: Final[dict[str, Callable[[Runner, Plan], SuiteResult]]] = {
    "lowering": lowering,
    "recording": recording,
    "eager": eager,
    "archive": archive,
    "streaming": streaming,
    "dump": dump,
    "decode": decode,
    "engines": engines,
    "kernels": kernels,
    "serve": serve,
    "pages": pages,
    "rows": rows,
    "embeddings": embeddings,
    "pictures": pictures,
    "speech": speech,
}

# How often everything is measured where nobody says; ratios of decode and kernels are of six rounds at least, and a
# round of serve takes ten minutes.
ROUNDS: Final = 5
MORE_ROUNDS: Final = {"decode": 7, "kernels": 7, "serve": 3, "pages": 3}


def run_suite(name: str, runner: Runner, plan: Plan, command: str) -> Run:
    """Runs one suite and says under what circumstances.

    Args:
        name: one of ``SUITES``.
        runner: starts the processes.
        plan: what is measured.
        command: what a person types to repeat it.

    Raises:
        BenchError: a measured process failed.
    """
    before = load_average()
    result = SUITES[name](runner, plan)
    today = datetime.now(UTC).date().isoformat()
    return Run(result, this_machine(), today, command, runner.rounds, (before, load_average()))
