"""config.json of every family: made into a model without weights."""

import json
from pathlib import Path
from random import Random

from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target
from tests.goldens.cases import CASES
from transformer_core.models import load_model

_BY_FAMILY = {str(case.config.get("model_type")): case.config for case in CASES.values()}
_KEYS = tuple(sorted({key for config in _BY_FAMILY.values() for key in config}))
_VALUES = (*_BY_FAMILY, "full_attention", "sliding_attention", "linear_attention", "silu", "gelu", "relu2", "yarn")
_VALUES += tuple(
    {"rope_type": kind, "type": kind, "factor": 4.0, "rope_theta": 1e4}
    for kind in ("linear", "dynamic", "yarn", "llama3")
)


def _seeds() -> list[bytes]:
    return [json.dumps(config).encode() for config in _BY_FAMILY.values()]


def _mutate(data: bytes, draw: Random) -> bytes:
    return mutate_json(data, draw, _VALUES, _KEYS)


def _run(data: bytes) -> bool:
    load_model(Path(written("model/config.json", data).parent), weights=False)
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
