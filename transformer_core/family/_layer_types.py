"""Fields of config.json by type of layer: with a window and without."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._fields import whole_rope
from transformer_core.layers._rope_config import RopeConfig, RopeKind

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"


def every_nth_full(layers: int, every: int) -> list[str]:
    """Returns types of layers of which every n-th one looks at all."""
    return [SLIDING if (index + 1) % every else FULL for index in range(layers)]


def rope_kinds(types: Sequence[str]) -> tuple[RopeKind, ...]:
    """Returns the RoPE of each layer: the second one with a window."""
    return tuple(RopeKind.LOCAL if kind == SLIDING else RopeKind.MODEL for kind in types)


def rope_of_type(
    fields: ConfigFields, architecture: str, kind: str, head_size: int, default_base: float, **default: Any
) -> RopeConfig:
    """Reads the RoPE of a type of layers, over whole heads; ``default`` is that of a file without any."""
    return whole_rope(rope_fields(fields, kind, default), architecture, head_size, default_base=default_base)


def rope_fields(fields: ConfigFields, kind: str, default: Mapping[str, Any] | None = None) -> ConfigFields:
    """Returns the file's fields with the RoPE of one type of layers only, from transformers 4's and 5's forms."""
    values: dict[str, Any] = dict(fields.values)
    if fields.has("rope_parameters"):
        values["rope_parameters"] = dict(fields.object("rope_parameters").object(kind).values)
    elif default:
        values["rope_parameters"] = dict(default)
    elif kind == SLIDING:
        values |= {"rope_scaling": None, "rope_theta": fields.values.get("rope_local_base_freq")}
    return ConfigFields(values, fields.where)


def ropes_of_types(
    fields: ConfigFields,
    types: Sequence[str],
    head_size: int,
    defaults: Mapping[str, Mapping[str, Any]],
    share: float | None = None,
) -> dict[str, Any]:
    """Reads the RoPE of layers with a window and without, as attributes of a ``DecoderConfig``.

    Args:
        fields: fields of config.json.
        types: type of each layer.
        head_size: H.
        defaults: RoPE of each type if the file has none.
        share: rotated share of a head if the file has RoPE without one; None if whole heads are rotated.
    """
    ropes: dict[str, RopeConfig] = {}
    for kind in dict.fromkeys(kind for kind in types if kind in (FULL, SLIDING)):
        own = rope_fields(fields, kind, defaults[kind]).values
        read = ConfigFields({**own, "rope_theta": None, "rope_scaling": None}, fields.where)
        base = defaults[kind]["rope_theta"]
        if share is None:
            ropes[kind] = whole_rope(read, "this family", head_size, default_base=base)
        else:
            ropes[kind] = RopeConfig.from_hf(read, head_size, base, share)
    if not ropes:
        return {"rope": RopeConfig(rotated=2, trained_length=fields.integer("max_position_embeddings"))}
    first = ropes.get(FULL) or ropes[SLIDING]
    both = len(ropes) > 1
    return {
        "rope": first,
        "local_rope": ropes[SLIDING] if both else None,
        "rope_kinds": tuple(RopeKind.LOCAL if both and kind == SLIDING else RopeKind.MODEL for kind in types),
    }


def owners_of(fields: ConfigFields, types: Sequence[str], default: int) -> tuple[int | None, ...]:
    """Reads ``num_kv_shared_layers``: each of these last layers reads the cache of the last one before of its type.

    Raises:
        ConfigError: there are as many as layers, or a type lacks a layer before them.
    """
    name, layers = "num_kv_shared_layers", len(types)
    shared = fields.integer(name, default, minimum=0)
    if shared == 0:
        return ()
    first = layers - shared
    last = {kind: index for index, kind in enumerate(types[: max(first, 0)])}
    if set(last) != set(types):
        fields.refuse(
            name, f"a number of last layers with a layer of each of their types before, out of {layers} layers"
        )
    return tuple(None if index < first else last[kind] for index, kind in enumerate(types))


def listed(
    fields: ConfigFields, name: str, default: list[Any] | None, expected: str, accepts: Callable[[Any], bool]
) -> list[Any]:
    """Reads a field with a value for each layer; ``default`` if it is absent.

    Raises:
        ConfigError: it is not a list of so many accepted values, as described by ``expected``.
    """
    layers, values = fields.integer("num_hidden_layers"), fields.values.get(name)
    if values is None and default is not None:
        return default
    if not isinstance(values, list) or len(values) != layers or not all(map(accepts, values)):
        fields.refuse(name, f"a list of {layers} (num_hidden_layers) {expected}")
    return values


def heads_of_types(fields: ConfigFields, types: Sequence[str], *, own_kv_heads: bool) -> dict[str, tuple[int, int]]:
    """Reads K and H of each type of layers: of ``per_layer_config``, or ``global_head_dim`` of layers without a window.

    Args:
        fields: fields of config.json.
        types: types of the layers.
        own_kv_heads: whether layers without a window have ``num_global_key_value_heads``, if that is given.

    Raises:
        ConfigError: K does not divide N, or layers of one type differ.
    """
    heads = fields.integer("num_attention_heads")
    common = fields.integer("num_key_value_heads"), fields.integer("head_dim")
    name = "num_global_key_value_heads" if own_kv_heads and fields.has("num_global_key_value_heads") else None
    full = common[0] if name is None else fields.integer(name), fields.integer("global_head_dim", 512)
    by_type = {kind: full if kind == FULL else common for kind in types}
    if "per_layer_config" in fields.values:
        name, by_type = "per_layer_config", _overrides(fields, types, common)
    wrong = next((kv_heads for kv_heads, _ in by_type.values() if heads % kv_heads), None)
    if wrong is not None:
        fields.refuse(name or "num_key_value_heads", f"divisors of num_attention_heads ({heads}), and {wrong} is none")
    return by_type


def _overrides(fields: ConfigFields, types: Sequence[str], common: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Reads ``per_layer_config``: fields by the number of a layer."""
    name, by_type = "per_layer_config", dict[str, tuple[int, int]]()
    entries = fields.object(name) if fields.has(name) else ConfigFields({}, fields.where)
    expected = (
        f"fields num_key_value_heads and head_dim by numbers of layers, 0 to {len(types) - 1}, alike in each type"
    )
    known = {"num_key_value_heads", "head_dim"}
    for key, values in entries.values.items():
        if key not in map(str, range(len(types))) or not isinstance(values, Mapping) or not values.keys() <= known:
            fields.refuse(name, expected)
    for index, kind in enumerate(types):
        own = ConfigFields(entries.values.get(str(index), {}), f"{fields.where}: {name}: {index}")
        sizes = own.integer("num_key_value_heads", common[0]), own.integer("head_dim", common[1])
        if by_type.setdefault(kind, sizes) != sizes:
            fields.refuse(name, expected)
    return by_type
