"""Builds and tests examples/acme as the Bazel workspace of a team of its own, beside our wheels.

    ./bazelw run //tests/wheels:example_workspace

Bazel cannot run inside of its own tests, so this is a program, which .ci/run calls. The workspace gets our wheels from
bazel-bin, and the packages of the lock from where our own build has unpacked them, so nothing is fetched twice.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

_EXAMPLE = "examples/acme"
_PLAIN = ("--color=no", "--curses=no")


def shared_repositories(external: Path) -> list[str]:
    """The flags that let a workspace use the packages of ours: those below ``external`` that pip_parse has made."""
    ours = [path for path in external.iterdir() if path.is_dir() and _is_shared(path.name)]
    return [f"--override_repository={path.name}={path}" for path in sorted(ours)]


def _is_shared(name: str) -> bool:
    # The packages name rules of ours, whose file names what was found out of this machine's devices.
    return name in ("pip", "local_devices") or name.startswith(("pip_", "pypi__"))


def _bazel(root: Path, *arguments: str, cwd: str = "", environ: Mapping[str, str] | None = None) -> str:
    """Runs Bazel and returns what it writes to stdout."""
    command = [root / "bazelw", *arguments]
    env = {**os.environ, **(environ or {})}
    return subprocess.run(command, cwd=root / cwd, env=env, text=True, stdout=subprocess.PIPE, check=True).stdout


def bazel_arguments(output_base: Path, shared: Iterable[str]) -> list[str]:
    """The arguments that test everything in the workspace, with an output base beside ours."""
    return [f"--output_base={output_base}-acme", "test", "//...", *_PLAIN, *shared]


def main() -> int:
    """Returns 0 where the workspace's tests pass."""
    root = Path(os.environ["BUILD_WORKSPACE_DIRECTORY"])
    _bazel(root, "build", "//:wheels", *_PLAIN)
    output_base = Path(_bazel(root, "info", "output_base").strip())
    wheels = {"TAPELINE_WHEELS": _bazel(root, "info", "bazel-bin").strip()}
    command = bazel_arguments(output_base, shared_repositories(output_base / "external"))
    try:
        print(_bazel(root, *command, cwd=_EXAMPLE, environ=wheels))
    except subprocess.CalledProcessError as error:
        print(error.stdout, f"{_EXAMPLE}: its own Bazel failed", sep="\n", file=sys.stderr)
        return 1
    finally:
        subprocess.run([root / "bazelw", command[0], "shutdown"], cwd=root / _EXAMPLE, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
