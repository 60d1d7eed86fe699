"""Shows that Bazel refuses, while it analyses a build, each dependency that the layer table forbids.

    ./bazelw run //tests/layering:forbidden_edges

Bazel cannot run inside of its own tests, so this is a program, which .ci/run calls. It writes, outside the
source tree, one package below each layer with a target per dependency, forbidden and allowed, lets Bazel see
them by --package_path, and compares which targets it refuses with the table.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.layering._layers import LAYERS, allowed_edges, forbidden_edges

_PROBE = "layering_probe"


def probe_label(package: str, below: str) -> str:
    """The label of the target below ``package`` that depends on ``below``."""
    return f"//{package}/{_PROBE}:on_{below}"


def write_probes(folder: Path, edges: list[tuple[str, str]]) -> None:
    """Writes a package for each first member of ``edges``, with a target for each of its seconds."""
    for package in LAYERS:
        build = 'load("@rules_python//python:defs.bzl", "py_library")\n'
        for _, below in (edge for edge in edges if edge[0] == package):
            build += f'py_library(name = "on_{below}", deps = ["//{below}"])\n'
        probe = folder / package / _PROBE
        probe.mkdir(parents=True)
        (probe / "BUILD.bazel").write_text(build)


def refused(log: str) -> set[tuple[str, str]]:
    """The (dependent, dependency) labels of which Bazel's output says that visibility forbids them."""
    return set(re.findall(r"target '([^']+)' is not visible from target '([^']+)'", log))


def main() -> int:
    """Returns 0 where Bazel and the table agree on every edge."""
    root = Path(os.environ["BUILD_WORKSPACE_DIRECTORY"])
    edges = forbidden_edges() + allowed_edges()
    with tempfile.TemporaryDirectory() as folder:
        write_probes(Path(folder), edges)
        command = [root / "bazelw", "build", "--nobuild", "--keep_going", "--color=no", "--curses=no"]
        command += [f"--package_path=%workspace%:{folder}", *(probe_label(*edge) for edge in edges)]
        done = subprocess.run(command, cwd=root, text=True, capture_output=True, check=False)
    expected = {(f"//{below}:{below}", probe_label(package, below)) for package, below in forbidden_edges()}
    refusals = refused(done.stderr)
    for dependency, probe in sorted(expected - refusals):
        print(f"NOT REFUSED: {probe.split('/')[2]} on {dependency}")
    for dependency, probe in sorted(refusals - expected):
        print(f"REFUSED, though the table allows it: {probe.split('/')[2]} on {dependency}")
    analysed = re.search(r"Analysis succeeded for only (\d+) of (\d+) top-level targets", done.stderr)
    counts = tuple(map(int, analysed.groups())) if analysed else None
    if refusals != expected or counts != (len(allowed_edges()), len(edges)):
        print(done.stderr, file=sys.stderr)
        return 1
    print(f"Bazel refuses all {len(expected)} forbidden dependencies and accepts all {len(allowed_edges())} allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
