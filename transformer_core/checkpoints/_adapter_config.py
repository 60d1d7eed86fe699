"""adapter_config.json of PEFT's LoRA: the fields that a merge needs, and refused fields."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lang_core import CheckpointError, file_bytes
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints._header import parse_json
from transformer_core.checkpoints._patterns import NamePatterns

CONFIG_FILE: Final = "adapter_config.json"
_MOST_BYTES: Final = 4 << 20

# Fields that say how an adapter was trained or where it goes, which its tensors say as well: they change no merge.
_OF_TRAINING: Final = frozenset(
    """auto_mapping bias ensure_weight_tying eva_config exclude_modules inference_mode init_lora_weights layers_pattern
    layers_to_transform lora_bias lora_dropout megatron_core peft_version qalora_group_size revision
    runtime_config target_modules task_type""".split()
)
_READ: Final = frozenset(
    """alpha_pattern base_model_name_or_path fan_in_fan_out lora_alpha modules_to_save peft_type r rank_pattern use_dora
    target_parameters trainable_token_indices use_rslora""".split()
)
# Initialisations that leave the base model's weights as they are; others subtract from them what the adapter adds.
_KEEPING_THE_BASE: Final = (True, False, "gaussian", "orthogonal", "eva")
_BEFORE: Final = r"(.*\.)?"  # PEFT matches the end of a module's path


@dataclass(frozen=True, slots=True)
class PatternValues:
    """Values of modules by pattern of their names.

    Attributes:
        patterns: patterns, each of a whole name.
        values: value of each pattern.
    """

    patterns: NamePatterns
    values: tuple[float, ...]

    def of(self, module: str, default: float) -> float:
        """Returns the value of the first pattern that matches a module; ``default`` if none does.

        Raises:
            ConfigError: as ``NamePatterns.first``.
        """
        number = self.patterns.first(module)
        return default if number is None else self.values[number]


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Settings of a LoRA adapter.

    Attributes:
        base: name of the model that it was trained on, as it was called there; "" if unknown.
        rank: r of modules without a rank of their own.
        alpha: lora_alpha of modules without one of their own.
        rank_pattern: ranks by pattern of modules.
        alpha_pattern: alphas by pattern of modules.
        rank_stabilized: True divides alpha by the root of the rank (rsLoRA).
        decomposed: True gives each output a learned magnitude (DoRA).
        transposed: True if matrices are stored [inputs, outputs] (``Conv1D`` of GPT-2).
        saved: ends of the paths of modules that the adapter holds whole copies of (``modules_to_save``).
        tokens: ids of the tokens of which the adapter holds rows, by the end of the path of the module that has them
            (``trainable_token_indices``); "" for any module.
        parameters: ends of the names of parameters that are adapted by themselves (``target_parameters``).
    """

    base: str
    rank: int
    alpha: float
    rank_pattern: PatternValues
    alpha_pattern: PatternValues
    rank_stabilized: bool
    decomposed: bool
    transposed: bool
    saved: tuple[str, ...] = ()
    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()

    def ranks(self, modules: Iterable[str]) -> dict[str, "ModuleRank"]:
        """Returns the rank and the scaling of each module.

        Raises:
            ConfigError: searching the patterns takes too long, or a module's name is longer than any.
        """
        return {module: self._rank(module) for module in modules}

    def _rank(self, module: str) -> "ModuleRank":
        parameter = f"{module}.weight"
        alone = any(f".{parameter}".endswith(f".{name}") for name in self.parameters)
        matched = parameter if alone else module  # by the patterns
        rank = int(self.rank_pattern.of(matched, self.rank))
        alpha = self.alpha_pattern.of(matched, self.alpha)
        return ModuleRank(rank, alpha / (math.sqrt(rank) if self.rank_stabilized else rank))


class ModuleRank(NamedTuple):
    """Size of a module's low-rank change.

    Attributes:
        rank: r.
        scaling: factor of B A.
    """

    rank: int
    scaling: float


def read_adapter_config(directory: str | os.PathLike[str]) -> AdapterConfig:
    """Reads adapter_config.json.

    Raises:
        CheckpointError: the file is missing or damaged.
        ConfigError: it describes another kind of adapter, or has a setting that is not supported.
    """
    path = os.path.join(os.fspath(directory), CONFIG_FILE)
    fields = ConfigFields(_values(path), path)
    fields.choice("peft_type", ["LORA"])
    _check_supported(fields)
    return AdapterConfig(
        base=_text(fields, "base_model_name_or_path"),
        rank=fields.integer("r", 8),
        alpha=fields.number("lora_alpha", 8.0),
        rank_pattern=_patterns(fields, "rank_pattern", ConfigFields.integer),
        alpha_pattern=_patterns(fields, "alpha_pattern", ConfigFields.number),
        rank_stabilized=fields.boolean("use_rslora", False),
        decomposed=fields.boolean("use_dora", False),
        transposed=fields.boolean("fan_in_fan_out", False),
        saved=_names(fields, "modules_to_save"),
        tokens=_tokens(fields, "trainable_token_indices"),
        parameters=_parameters(fields),
    )


def _values(path: str) -> dict[str, object]:
    try:
        text = file_bytes(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error}): an adapter is a directory of PEFT with {CONFIG_FILE}"
        ) from None
    return parse_json(text, path, "configuration")


def _check_supported(fields: ConfigFields) -> None:
    init = fields.values.get("init_lora_weights", True)
    if init not in _KEEPING_THE_BASE:
        fields.refuse(
            "init_lora_weights",
            "true, false, gaussian, orthogonal or eva: others change the base model's weights; save the adapter with "
            "path_initial_model_for_weight_conversion",
        )
    for name, value in fields.values.items():
        if name not in _READ | _OF_TRAINING and value not in (None, False, "none", {}, []):
            fields.refuse(
                name, "none: a merge of it is not supported; merge the adapter with PEFT and export the result"
            )


def _text(fields: ConfigFields, name: str) -> str:
    value = fields.values.get(name)
    return value if isinstance(value, str) else ""


def _names(fields: ConfigFields, name: str) -> tuple[str, ...]:
    names = fields.values.get(name) or []
    if not isinstance(names, list) or not all(isinstance(text, str) for text in names):
        fields.refuse(name, "a list of names")
    return tuple(names)


def _parameters(fields: ConfigFields) -> tuple[str, ...]:
    """Returns ends of names of parameters; a module's tensors do not say which of its parameters they are for."""
    names = _names(fields, "target_parameters")
    if any(name.rpartition(".")[2] != "weight" for name in names):
        fields.refuse(
            "target_parameters",
            "names of matrices that end with .weight; experts as one tensor are not merged: merge the adapter with "
            "PEFT and export the result",
        )
    return names


def _tokens(fields: ConfigFields, name: str) -> dict[str, tuple[int, ...]]:
    """Returns token ids by module; PEFT writes a list for those of the embedding."""
    value = fields.values.get(name) or {}
    listed = value if isinstance(value, dict) else {"": value}
    for ids in listed.values():
        whole = isinstance(ids, list) and all(type(number) is int and number >= 0 for number in ids)
        if not whole or len({*ids}) != len(ids):
            fields.refuse(name, "token ids without repetitions, a list or lists by module")
    return {str(module): tuple(ids) for module, ids in listed.items()}


def _patterns(fields: ConfigFields, name: str, read: Callable[[ConfigFields, str], float]) -> PatternValues:
    """Returns patterns of modules with their values."""
    inner = fields.object(name) if fields.values.get(name) else ConfigFields({}, fields.where)
    values = tuple(read(inner, key) for key in inner.values)
    return PatternValues(NamePatterns([*inner.values], f"{fields.where}: field {name!r}", _BEFORE), values)
