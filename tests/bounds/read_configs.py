"""Reads hostile values in every field of the configurations of families; a child process of config_values_test.py.

The process has a limit of memory, and ends itself with the place of a configuration on standard error if reading that
one takes too long. Its standard output is one JSON object: ``count``, the number of configurations, ``built``, the
number of those of which a layer was made, and ``faults``, a list of [architecture, field, value, error] for each
error that was no ``TapelineError``.

Usage: read_configs.py PART PARTS
"""

import copy
import faulthandler
import json
import resource
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lang_core import TapelineError
from tests.goldens.cases import CASES
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.own_decoder_forms import AUTHORS, GGUF_ALONE, authors_config
from tests.goldens.published_forms import FORMS
from transformer_core.family import ConfigFields, Family, ModelFamily, family_in
from transformer_core.models import DecoderLM

_MEMORY: Final = 3 << 30
_SECONDS: Final = 120  # for one configuration, of which a thousand take a second
_BUILT: Final = 20  # of the models of an architecture
VALUES: Final[Mapping[str, Any]] = {
    "10**30": 10**30,
    "10**400": 10**400,
    "2**63": 2**63,
    "2**31 - 1": 2**31 - 1,
    "2**31": 2**31,
    "100000": 100_000,
    "0": 0,
    "-1": -1,
    "-2**70": -(2**70),
    "1.5": 1.5,
    "1e300": 1e300,
    "1e-300": 1e-300,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "text": "x",
    "letters": "a" * 100_000,
    "empty": "",
    "true": True,
    "false": False,
    "null": None,
    "list": [],
    "list of lists": [[]],
    "list of nulls": [None] * 4,
    "list of objects": [{}] * 3,
    "list of integers": [10**30] * 3,
    "object": {},
    "object of objects": {"": {"": {}}},
}


def _places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the places of a configuration: its fields, those of inner objects, and the first entry of each list."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield (*path, key)
            yield from _places(value, (*path, key))
    elif isinstance(values, list) and values:
        yield (*path, 0)
        yield from _places(values[0], (*path, 0))


def _changed(config: Mapping[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(dict(config))
    inner: Any = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return made


def _read(values: Mapping[str, Any], *, build: bool) -> bool:
    """Reads a configuration, as loading a model does; returns True if one layer of the model was made."""
    fields = ConfigFields(values, "config.json")
    family = family_in(fields)
    config = family.read(fields)
    if build:
        assert isinstance(family, Family | ModelFamily)
        make = family.make or DecoderLM
        make(config, "f32", 1)
    return build


def configurations() -> dict[str, Mapping[str, Any]]:
    """Returns a configuration of each architecture."""
    first: dict[str, Mapping[str, Any]] = {}
    for case in [*CASES.values(), *ENCODER_CASES.values()]:
        first.setdefault(case.config["architectures"][0], case.config)
    for architecture, (name, _, config) in FORMS.items():
        first.setdefault(architecture, {**config(CASES[name].config), "architectures": [architecture]})
    for architecture in (*AUTHORS, *GGUF_ALONE):
        first.setdefault(architecture, authors_config(architecture))
    return dict(sorted(first.items()))


def main(part: int, parts: int) -> None:
    """Reads the configurations of every ``parts``-th architecture, the first of which is ``part``."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    count = built = 0
    faults: list[list[str]] = []
    for architecture, config in list(configurations().items())[part::parts]:
        left = _BUILT
        for place in list(_places(config)):
            for label, value in VALUES.items():
                faulthandler.dump_traceback_later(_SECONDS, exit=True)
                count += 1
                build = left > 0 and isinstance(value, int) and value > 1000
                where = ".".join(map(str, place))
                try:
                    made = _read(_changed(config, place, value), build=build)
                except TapelineError:
                    continue
                except Exception as error:  # noqa: BLE001 - which is the fault that is looked for
                    faults.append([architecture, where, label, f"{type(error).__name__}: {error!s:.200}"])
                else:
                    built += made
                    left -= made
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"count": count, "built": built, "faults": faults}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
