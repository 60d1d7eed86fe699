"""The program that builds the example as a workspace shares packages alone; the workspace pins what ours pins."""

import re
from pathlib import Path

from tests.wheels.example_workspace import bazel_arguments, shared_repositories

_ROOT = Path(__file__).absolute().parents[2]
_PIN = re.compile(r"(?m)^\s+(?:sha256|requirement|strip_prefix|urls) = (.*)$")


def test_packages_are_shared_and_nothing_else(tmp_path: Path) -> None:
    for name in ("pip", "pip_numpy", "pypi__pip", "local_devices", "host_python", "rules_python"):
        (tmp_path / name).mkdir()
    (tmp_path / "@pip_numpy.marker").write_text("")
    names = [flag.removeprefix("--override_repository=").partition("=")[0] for flag in shared_repositories(tmp_path)]
    assert names == ["local_devices", "pip", "pip_numpy", "pypi__pip"]


def test_the_workspace_has_an_output_base_of_its_own() -> None:
    base, *command = bazel_arguments(Path("/cache/base"), ["--shared"])
    assert base == "--output_base=/cache/base-acme"
    assert command[:2] == ["test", "//..."]
    assert command[-1] == "--shared"


def test_the_workspace_pins_what_ours_pins() -> None:
    ours, example = ((_ROOT / path).read_text() for path in ("WORKSPACE", "examples/acme/WORKSPACE"))
    assert _PIN.findall(example) == _PIN.findall(ours)
    assert (_ROOT / "examples/acme/.bazelversion").read_text() == (_ROOT / ".bazelversion").read_text()
