"""Methods of quantization that are read, by their names in config.json."""

from collections.abc import Callable, Mapping
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.quantized._awq import awq_contents
from transformer_core.checkpoints.quantized._compressed import compressed_contents
from transformer_core.checkpoints.quantized._contents import Contents
from transformer_core.checkpoints.quantized._fp8 import fp8_contents
from transformer_core.checkpoints.quantized._gptq import gptq_contents
from transformer_core.checkpoints.quantized._mxfp4 import mxfp4_contents
from transformer_core.checkpoints.quantized._stored import StoredTensors

METHODS: Final[Mapping[str, Callable[[ConfigFields, StoredTensors], Contents]]] = {
    "fp8": fp8_contents,
    "fbgemm_fp8": fp8_contents,
    "mxfp4": mxfp4_contents,
    "compressed-tensors": compressed_contents,
    "gptq": gptq_contents,
    "awq": awq_contents,
}
"""Readers of checkpoints by ``quant_method``."""

_FIELDS: Final = ("quantization_config", "compression_config")


def quantization_fields(config: ConfigFields) -> ConfigFields | None:
    """Returns the fields that say how a checkpoint is quantised; None for an unquantised one.

    Args:
        config: fields of config.json.

    Raises:
        ConfigError: the method is missing or unknown.
    """
    name = next((name for name in _FIELDS if config.has(name)), None)
    if name is None:
        return None
    fields = config.object(name)
    _check_method(fields)
    return fields


def _check_method(fields: ConfigFields) -> None:
    for name in ("load_in_4bit", "load_in_8bit"):
        if fields.values.get(name) and not fields.has("quant_method"):
            fields.refuse(name, f"a quant_method among {', '.join(METHODS)}, not bitsandbytes")
    if fields.values.get("quant_method") not in METHODS:
        fields.refuse("quant_method", f"one of {', '.join(METHODS)} (or take the original model)")
