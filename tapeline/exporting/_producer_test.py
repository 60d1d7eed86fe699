"""Versions that bundles and wheels state."""

import ast
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from tapeline.cli import VERSION
from tapeline.exporting._producer import producer

_WHEELS = Path(__file__).parents[2] / "build_defs" / "version.bzl"


def test_bundles_and_wheels_have_one_version() -> None:
    """Bazel reads no Python, and Python no Bazel without its rules: the version stands in both."""
    text = ast.parse(_WHEELS.read_text())
    assigned = [statement for statement in text.body if isinstance(statement, ast.Assign)]
    assert [ast.unparse(statement.targets[0]) for statement in assigned] == ["VERSION"]
    assert ast.literal_eval(assigned[0].value) == VERSION
    assert producer()["tapeline"] == VERSION


def test_versions_of_packages_are_those_that_run() -> None:
    assert producer()["numpy"] == np.__version__
    assert producer()["ml_dtypes"] == ml_dtypes.__version__
    assert producer()["python"] == ".".join(map(str, sys.version_info[:3]))
