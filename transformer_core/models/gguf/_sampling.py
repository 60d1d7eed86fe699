"""Sampling that a GGUF file recommends, as a generation_config.json.

llama.cpp defines the keys: convert_hf_to_gguf.py writes them from the model's generation_config.json, and
common.cpp takes them for every setting that the user does not give.
"""

from collections.abc import Mapping
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.gguf import GgufCheckpoint
from transformer_core.models.gguf.readers import SAMPLING, Values, sampling_fields

_FILE: Final = "generation_config.json"
_NUMBER: Final = "a finite number"


def sampling_files(file: GgufCheckpoint) -> dict[str, Any]:
    """Returns the generation_config.json of a file's sampling keys, by name; empty if the file has none of them.

    The keys of other samplers (XTC, mirostat), and their order, are not read.

    Raises:
        ConfigError: a value is not a number, or out of its range; names the key.
    """
    fields = sampling_fields(file)
    values: Values = {}
    if fields.has("temp"):  # at 0 and below the likeliest token is taken
        temperature = _number(fields, "temp")
        values |= {"temperature": temperature} if temperature > 0 else {"do_sample": False}
    if fields.has("top_k"):  # at 0 and below all tokens are kept
        values["top_k"] = max(0, int(_number(fields, "top_k")))
    for name in ("top_p", "min_p"):
        if fields.has(name):
            values[name] = min(1.0, max(0.0, _number(fields, name)))
    if fields.has("penalty_repeat") and _number(fields, "penalty_last_n", -1) != 0:
        penalty = _number(fields, "penalty_repeat")
        if penalty <= 0:
            fields.refuse("penalty_repeat", "a finite number above 0")
        values["repetition_penalty"] = penalty
    return {_FILE: values} if values else {}


def sampling_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of a generation_config.json: ``sampling_files`` the other way round.

    >>> sampling_metadata({"temperature": 0.6, "top_k": 20, "do_sample": True})
    {'general.sampling.temp': 0.6, 'general.sampling.top_k': 20}
    """
    fields: dict[str, Any] = {}
    if values.get("do_sample") is False:
        fields["temp"] = 0.0
    elif values.get("temperature") is not None:
        fields["temp"] = float(values["temperature"])
    if values.get("top_k") is not None:
        fields["top_k"] = int(values["top_k"])
    fields |= {name: float(values[name]) for name in ("top_p", "min_p") if values.get(name) is not None}
    if values.get("repetition_penalty") is not None:
        fields["penalty_repeat"] = float(values["repetition_penalty"])
    return {f"{SAMPLING}{name}": value for name, value in fields.items()}


def _number(fields: ConfigFields, name: str, default: float | None = None) -> float:
    """Reads a number, which llama.cpp takes from text too."""
    if default is not None and not fields.has(name):
        return default
    value = fields.values[name]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        fields.refuse(name, _NUMBER)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        fields.refuse(name, _NUMBER)
    if not abs(number) < float("inf"):
        fields.refuse(name, _NUMBER)
    return number
