"""VaultGemma (arXiv:2510.15001): a Gemma 2 with two norms per layer."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.models.families._gemma2 import gemma2_kind

_STORED: Final = {"post_attention_layernorm": "pre_feedforward_layernorm"}


def _read(fields: ConfigFields) -> DecoderConfig:
    return gemma2_kind(fields, VAULT_GEMMA.architecture)


VAULT_GEMMA: Final = Family(
    "VaultGemmaForCausalLM", "vaultgemma", _read, DecoderLayer, lambda config: RenamedKeys(_STORED)
)
