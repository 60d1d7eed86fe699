"""The project in examples/acme, as a team would install and test it: by pip, beside our wheels, without Bazel."""

import os
import shutil
from pathlib import Path

from tests.wheels._environments import OWN_PACKAGES, environment, install, run

ACME = Path(__file__).absolute().parents[2] / "examples" / "acme"


def test_a_team_s_own_family_op_encoding_and_kernel(tmp_path: Path) -> None:
    project = tmp_path / "acme"
    shutil.copytree(ACME, project)
    python = environment(tmp_path / "environment", OWN_PACKAGES, ["flit-core", "pytest", "safetensors"])
    install(python, project)
    # All of its tests run in its own workspace (.ci/run), and here with TAPELINE_LONG=1 in the environment.
    chosen = [] if os.environ.get("TAPELINE_LONG") else ["-k", "plugin or doctor or generates"]
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", *chosen, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
