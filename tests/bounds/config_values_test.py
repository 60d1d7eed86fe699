"""Hostile values in every field of every family's configuration: each is read, or one typed error, in bounds."""

import json
import os
import subprocess
import sys

import pytest

from lang_core import ConfigError
from tests.bounds import read_configs
from tests.goldens.samples import LONG
from transformer_core.family import ConfigFields, family_in

_PARTS = 28  # of the architectures; a default run takes one in 28


@pytest.mark.parametrize("part", range(_PARTS) if LONG else [5])
def test_every_field_of_a_family_is_bounded(part: int) -> None:
    """In a child: a hang, or memory beyond the limit, ends it with a return code and the place in the code."""
    done = subprocess.run(
        [sys.executable, read_configs.__file__, str(part), str(_PARTS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["faults"] == []
    assert result["count"] > 1000
    assert result["built"] > 0


@pytest.mark.parametrize("architecture", [*read_configs.configurations()])
def test_a_number_of_layers_that_no_model_has(architecture: str) -> None:
    """Checks each field that counts layers, with numbers that would make a loop endless or a list of gigabytes."""
    config = dict(read_configs.configurations()[architecture])
    fields = [(config, name) for name in config]
    fields += [(inner, name) for inner in config.values() if isinstance(inner, dict) for name in inner]
    counting = [(inner, name) for inner, name in fields if "layers" in name and type(inner[name]) is int]
    for inner, name in counting:
        for value in (10**30, 2**31 - 1, 10**9):
            before, inner[name] = inner[name], value
            read = ConfigFields(config, "config.json")
            try:
                family_in(read).read(read)
            except ConfigError as error:
                assert name in str(error) or "layers" in str(error)  # noqa: PT017 - not every field is read
            inner[name] = before
