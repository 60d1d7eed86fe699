"""Starts fuzz targets as child processes, and collects their figures and findings."""

import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).absolute().parents[2]
FINDINGS: Final = Path(__file__).parent / "findings"
"""Minimised findings of the past: a folder per target."""

_EDGES: Final = re.compile(r"^#\d+\s.*\bcov: (\d+)", re.MULTILINE)
_COUNTS: Final = struct.Struct("<QQ")
_MEMORY: Final = Path("/dev/shm")
_SCRATCH: Final = _MEMORY if os.access(_MEMORY, os.W_OK) else None  # a file system in memory, if there is one
_GRACE: Final = 600.0  # seconds beyond which a child is stuck, whatever it was told


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Figures of one child.

    Attributes:
        target: name of the target.
        executions: number of inputs that were run.
        accepted: number of inputs that were accepted as valid.
        edges: number of edges of the code that they reached.
        findings: files of the inputs that made findings.
        log: what the child wrote.
    """

    target: str
    executions: int
    accepted: int
    edges: int
    findings: tuple[Path, ...]
    log: str

    def __str__(self) -> str:
        """Returns the figures as one line."""
        return (
            f"{self.target:20} {self.executions:>12,} executions {self.accepted:>12,} accepted {self.edges:>7,} edges "
            f"{len(self.findings):>3} findings"
        )


def kept_findings(target: str) -> list[Path]:
    """Returns the files of the tree that a target once failed on."""
    return sorted(path for path in (FINDINGS / target).glob("*") if path.is_file())


def run_target(
    target: str, folder: Path, *, runs: int = -1, seconds: float = 0, seed: int = 1, timeout: int = 60
) -> Report:
    """Runs one target in a child process.

    Args:
        target: name of the target.
        folder: where the corpus and the findings are kept; a corpus that is there already is used.
        runs: number of executions; -1 for no limit.
        seconds: how long to run; 0 for no limit.
        seed: seed of libFuzzer's choices.
        timeout: seconds of one input, after which the process is ended; the input is a finding.
    """
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for path in kept_findings(target):
        (corpus / f"kept-{path.name}").write_bytes(path.read_bytes())
    before = {path: path.stat().st_mtime_ns for path in _inputs(folder)}
    limits = [f"--runs={runs}", f"--seconds={seconds}", f"--seed={seed}", f"--timeout={timeout}"]
    log, code = _child(target, folder, limits, timeout=seconds + _GRACE)
    inputs = tuple(path for path in _inputs(folder) if before.get(path) != path.stat().st_mtime_ns)
    if code and not inputs:
        raise RuntimeError(f"the child of {target} ended with {code} and left no finding:\n{log[-4000:]}")
    for path in inputs:
        if not path.name.startswith("native-"):
            _child(target, folder, [f"--minimize={path}"], timeout=_GRACE)
    counts = folder / "counts"
    executions, accepted = _COUNTS.unpack(counts.read_bytes())
    edges = max((int(number) for number in _EDGES.findall(log)), default=0)
    return Report(
        target=target, executions=executions, accepted=accepted, edges=edges, findings=inputs, log=log[-20_000:]
    )


def _inputs(folder: Path) -> Iterator[Path]:
    return (path for path in sorted((folder / "findings").glob("*")) if path.suffix != ".txt")


def _child(target: str, folder: Path, arguments: list[str], timeout: float) -> tuple[str, int]:
    command = [sys.executable, "-P", "-m", "tests.fuzz._child", target, f"--folder={folder}", *arguments]
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    # Hashes of strings decide about the order of sets, and with it about what a seed of libFuzzer's gives.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": timeout}
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_SCRATCH) as scratch:  # where targets write files
        environment["XDG_CACHE_HOME"] = f"{scratch}/cache"
        try:
            done = subprocess.run(command, **options, cwd=scratch, env=environment, check=False)
        except subprocess.TimeoutExpired as error:
            return (error.stdout or b"").decode(errors="replace"), -9
    return done.stdout.decode(errors="replace"), done.returncode
