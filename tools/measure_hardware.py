"""Measures this machine's processors, and writes the figures as a hardware file for ``export --dry_run``.

bazel run //tools:measure_hardware -- --output=here.toml

Products of matrices in f32 by NumPy's BLAS on all cores, and a matrix times a vector, which reads memory once: the best
of several runs, on a machine that does nothing else. Links are not measured.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from absl import flags

FLAGS: Final = flags.FlagValues()

_OUTPUT: Final = flags.DEFINE_string("output", "hardware.toml", "The file to write.", flag_values=FLAGS)
_NAME: Final = flags.DEFINE_string("name", "this machine", "Name of the machine.", flag_values=FLAGS)
_ROUNDS: Final = flags.DEFINE_integer(
    "rounds", 9, "Runs of each kind, of which the fastest counts.", lower_bound=1, flag_values=FLAGS
)

_FORM: Final = """name = "{name}"
devices = 1
memory_bytes = {memory}
memory_bandwidth = {bandwidth:.3g}

[flops]
f32 = {flops:.3g}

[sources]
devices = "one: links are not measured"
memory_bytes = "physical memory, as the system tells it"
memory_bandwidth = "measured: {rows} x {columns} f32 times a vector, NumPy {version}, best of {rounds}"
flops = "measured: {side} x {side} times {side} x {side} in f32, NumPy {version}, best of {rounds}"
"""


def measured(name: str, side: int, rows: int, rounds: int) -> str:
    """Returns a hardware file of this machine.

    Args:
        name: name of the machine.
        side: rows and columns of the square matrices.
        rows: rows of the matrix that is multiplied with a vector; it has 8,192 columns.
        rounds: number of runs, of which the fastest counts.
    """
    columns = 8192
    square, wide = np.ones((side, side), np.float32), np.ones((rows, columns), np.float32)
    vector = np.ones(columns, np.float32)
    return _FORM.format(
        name=name,
        memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        flops=2 * side**3 / _best(lambda: square @ square, rounds),
        bandwidth=wide.nbytes / _best(lambda: wide @ vector, rounds),
        side=side,
        rows=rows,
        columns=columns,
        rounds=rounds,
        version=np.__version__,
    )


def _best(run: Callable[[], object], rounds: int) -> float:
    """Returns the seconds of the fastest run."""
    seconds = []
    for _ in range(rounds + 1):  # the first one touches the memory
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


def main() -> None:
    """Measures, and writes the file."""
    FLAGS(sys.argv)
    path = Path(os.environ.get("BUILD_WORKING_DIRECTORY", ""), _OUTPUT.value)
    path.write_text(measured(_NAME.value, 3072, 16384, _ROUNDS.value))
    print(path)


if __name__ == "__main__":
    main()
