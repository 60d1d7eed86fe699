"""Schemes of compressed-tensors: which module is quantised how."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints._patterns import NamePatterns

_REGEX: Final = "re:"
STRATEGIES: Final = ("tensor", "channel", "group", "tensor_group", "block")
FORMATS: Final = (
    "pack-quantized",
    "float-quantized",
    "int-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
)
"""Formats of modules that are read."""

_MIXED: Final = "mixed-precision"


@dataclass(frozen=True, slots=True)
class Scheme:
    """Way in which modules are quantised.

    Attributes:
        where: place of the scheme in config.json, for messages.
        format: way in which they are stored.
        bits: bits of a stored number.
        integers: whether these are integers, not floats.
        symmetric: whether zero points are absent.
        strategy: elements that share a scale.
        group: columns that share a scale, for groups.
        block: rows and columns that share a scale, for blocks.
    """

    where: str
    format: str
    bits: int
    integers: bool
    symmetric: bool
    strategy: str
    group: int | None
    block: tuple[int, int] | None

    @property
    def shared(self) -> tuple[int, int] | None:
        """Rows and columns that share a scale; None if a row or the tensor does."""
        return self.block if self.group is None else (1, self.group)

    def expect(self, *, integers: bool, bits: Container[int]) -> None:
        """Checks that numbers are of a kind that the format stores.

        Raises:
            ConfigError: they are others.
        """
        if self.integers is not integers or self.bits not in bits:
            kind = "integers" if self.integers else "floats"
            raise ConfigError(f"{self.where}: {kind} of {self.bits} bits are not read in the format {self.format}")


class Schemes:
    """Schemes of a checkpoint, by module.

    Args:
        fields: fields of quantization_config.

    Attributes:
        quantises_activations: whether a scheme says how activations are quantised.

    Raises:
        ConfigError: a field has a value that is not supported.
    """

    def __init__(self, fields: ConfigFields) -> None:
        _check_whole(fields)
        self._where: Final = fields.where
        ignored = _names(fields, "ignore")
        self._ignored: Final = frozenset(ignored)
        self._ignored_patterns: Final = _patterns(ignored, f"{fields.where}: field 'ignore'")
        self._schemes: Final[dict[str, Scheme]] = {}
        self.quantises_activations = fields.has("kv_cache_scheme")
        groups = fields.object("config_groups")
        for name in groups.values:
            group = groups.object(name)
            self.quantises_activations |= group.has("input_activations") or group.has("output_activations")
            if group.has("weights"):
                scheme = _scheme(group, fields)
                self._schemes.update(dict.fromkeys(_names(group, "targets"), scheme))
        self._targets: Final = sorted(target for target in self._schemes if target.startswith(_REGEX))
        self._target_patterns: Final = _patterns(self._targets, f"{groups.where}: field 'targets'")

    def of(self, module: str) -> Scheme:
        """Returns the scheme of a quantised module: targets that are its name count first, then patterns, then classes.

        Raises:
            ConfigError: the module is in ``ignore``, or the targets do not match.
        """
        if module in self._ignored or self._ignored_patterns.first(module) is not None:
            raise ConfigError(f"{self._where}: ignore has {module!r}, whose weight is stored quantised")
        target = module if module in self._schemes else None
        if target is None and (number := self._target_patterns.first(module)) is not None:
            target = self._targets[number]
        if target is None:
            target = "Embedding" if "embed" in module.rpartition(".")[2] else "Linear"
        if target not in self._schemes:
            raise ConfigError(
                f"{self._where}: no target of config_groups matches {module!r}, whose weight is stored quantised; "
                f"targets: {', '.join(self._schemes)}"
            )
        return self._schemes[target]


def _names(fields: ConfigFields, name: str) -> list[str]:
    """Reads a list of names and patterns; empty if absent."""
    values = fields.values.get(name)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        fields.refuse(name, "a list of names")
    return values


def _patterns(targets: Iterable[str], where: str) -> NamePatterns:
    """Returns the patterns among names and patterns."""
    return NamePatterns([name.removeprefix(_REGEX) for name in targets if name.startswith(_REGEX)], where)


def _check_whole(fields: ConfigFields) -> None:
    """Refuses settings of the whole checkpoint that change weights in ways that are not read."""
    if fields.values.get("transform_config"):
        fields.refuse("transform_config", "none: rotated weights are not read")
    sparsity = fields.values.get("sparsity_config")
    if sparsity and sparsity != {"format": "dense"} and not _is_dense(sparsity):
        fields.refuse("sparsity_config", "none, or the format dense: sparse weights are not read")


def _is_dense(sparsity: object) -> bool:
    return isinstance(sparsity, Mapping) and sparsity.get("format") == "dense"


def _scheme(group: ConfigFields, whole: ConfigFields) -> Scheme:
    """Reads a config group."""
    own = group if group.has("format") else whole
    weights = group.object("weights")
    kind = weights.choice("type", ("int", "float"), "int")
    group_size = weights.values.get("group_size")
    strategy = weights.choice("strategy", STRATEGIES, _default_strategy(group_size))
    if weights.values.get("dynamic"):
        weights.refuse("dynamic", "false: weights are quantised once")
    return Scheme(
        where=weights.where,
        format=own.choice("format", _formats(own, group), None),
        bits=weights.integer("num_bits", 8),
        integers=kind == "int",
        symmetric=weights.boolean("symmetric", True),
        strategy=strategy,
        group=weights.integer("group_size") if strategy in ("group", "tensor_group") else None,
        block=_block(weights) if strategy == "block" else None,
    )


def _formats(own: ConfigFields, group: ConfigFields) -> Iterable[str]:
    """Returns the known formats; ``mixed-precision`` says that each group has one."""
    if own is not group and own.values.get("format") == _MIXED:
        group.refuse("format", f"one of {', '.join(FORMATS)}, since the checkpoint's is {_MIXED}")
    return FORMATS


def _default_strategy(group_size: object) -> str:
    if group_size is None:
        return "tensor"
    return "channel" if group_size == -1 else "group"


def _block(weights: ConfigFields) -> tuple[int, int]:
    value = weights.values.get("block_structure")
    sizes = value.split("x") if isinstance(value, str) else value
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(str(size).isdecimal() and int(size) for size in sizes):
        weights.refuse("block_structure", "two whole numbers above 0")
    return int(sizes[0]), int(sizes[1])
