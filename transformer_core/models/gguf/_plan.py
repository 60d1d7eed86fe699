"""GGUF files of models that are not in one yet: architecture, metadata, and places of tensors.

The tables by which files are read serve for writing, too. Names and forms of tensors come from the recipes that read
them, run on places in place of values (``StoredLayout``). Metadata are the fields that the architecture's reader asks
for; then the reader reads them, and the result must be the configuration again.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import ConfigError, TapelineError, TensorSpec, f32
from transformer_core._config_fields import ConfigFields, asked_names
from transformer_core.checkpoints import Recipe, RecipeOf
from transformer_core.layers._rope_scaling import (
    Llama3Scaling,
    LongropeScaling,
    ProportionalScaling,
    plain_frequencies,
)
from transformer_core.models import DecoderConfig, Model, StoredLayout
from transformer_core.models.gguf._answers import ALWAYS, Raw, answers
from transformer_core.models.gguf._layout import recipes_of
from transformer_core.models.gguf.readers import CHANGING, READERS, GgufArchitecture, Source

_PART: Final = re.compile(r"blk\.\d+\.([^.]+)\.(?:weight|bias)")
_IN_PLACE: Final = {
    "attn_q": "attn_qkv",
    "attn_k": "attn_qkv",
    "attn_v": "attn_qkv",
    "ffn_gate": "ffn_up",
    "attn_kv_b": "attn_k_b",
}
_SINGLE: Final = re.compile(r"blk\.\d+\.ssm_conv1d\.weight")
_WITH_UNREAD: Final = "gemma3n"
_NOT_TURNED: Final = 1e30
_CLOSE: Final = 2e-6  # numbers are f32 in the file
_UNCOMPARED: Final = ("bos_token_id", "eos_token_ids", "extra_layers", "prediction_heads")


class GgufPlan(NamedTuple):
    """Contents of a file.

    Attributes:
        architecture: architecture of the file.
        metadata: fields, with the architecture's name before them.
        layout: places of the parameters.
        further: tensors that are not made from parameters, f32.
    """

    architecture: GgufArchitecture
    metadata: dict[str, Any]
    layout: "GgufLayout"
    further: dict[str, np.ndarray]


class GgufForms:
    """Layout of a file of an architecture, as a source that decides between the forms of tensors."""

    layer_key: str = "blk.{}"
    ignorable: tuple[str, ...] = ()

    def __init__(self, architecture: GgufArchitecture, config: Any) -> None:
        self._architecture: Final = architecture
        self._config: Final = config

    def recipe_of(self, config: Any) -> RecipeOf:
        """Returns the recipes of a configuration's parameters, of stored values where these are not the parameter's."""
        recipes = recipes_of(config, self._architecture)

        def placed(name: str, shape: tuple[int, ...], source: Any) -> Recipe | None:
            recipe = recipes(name, shape, source)
            return recipe.placed() if hasattr(recipe, "placed") else recipe  # type: ignore[union-attr]

        return placed

    def has(self, key: str) -> bool:
        """Returns whether a new file has a tensor that may be in another form."""
        match, forms = _PART.fullmatch(key), self._architecture.forms
        if match is None:
            return False
        if match[1] == "attn_norm_2":
            return match[1] in forms and not self._config.shared_norm
        if match[1] in _IN_PLACE:
            return _IN_PLACE[match[1]] not in forms
        return match[1] in forms

    def spec(self, key: str) -> TensorSpec:
        """Returns a matrix's spec: a file has no tensor of this key in another rank."""
        del key
        return TensorSpec((1, 1), f32)

    def keys(self) -> Iterator[str]:
        """Yields nothing: the layout is of no file."""
        return iter(())


class GgufLayout:
    """Tensors of a file, made from a model's parameters.

    Args:
        model: modules, not packed.
        architecture: architecture of the file.

    Attributes:
        shapes: shapes of the tensors by key.
        stored: keys and shapes of the tensors that each parameter is a part of.
        numbers: parameters that metadata hold, one of each layer, by the field.
    """

    def __init__(self, model: Model[Any], architecture: GgufArchitecture) -> None:
        forms: Any = GgufForms(architecture, model.config)
        self._layout: Final = StoredLayout(model, forms)
        recipes = recipes_of(model.config, architecture)
        self._changed: Final[dict[str, Any]] = {}
        self.stored: Final[dict[str, dict[str, tuple[int, ...]]]] = {}
        for path, parameter in model.named_parameters():
            recipe: Any = recipes(path, parameter.spec.shape, forms)
            self.stored[path] = recipe.stored()
            if hasattr(recipe, "stored_values"):
                self._changed[path] = recipe
        self.numbers: Final = {
            name: [f"model.layers.{layer}.{path}" for layer in range(model.config.layers)]
            for path, name in architecture.tensors.items()
            if name in architecture.numbers
        }
        numbers = {key for key in self._layout.specs if key.split(".", 2)[-1] in architecture.numbers}
        self.shapes: Final = {
            key: _single(key, spec.shape) for key, spec in self._layout.specs.items() if key not in numbers
        }

    def tensors(self, parameters: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the tensors [..] of a file in the order of the parameters, each of any shape [..].

        Raises:
            ConfigError: parameters are not all that a tensor is made of.
        """
        for key, values in self._layout.tensors(_Stored(parameters, self._changed)):
            if key in self.shapes:
                yield key, values.reshape(self.shapes[key])


class _Stored(Mapping[str, np.ndarray]):
    """Parameters with the values that a file stores."""

    def __init__(self, parameters: Mapping[str, np.ndarray], changed: Mapping[str, Any]) -> None:
        self._parameters: Final = parameters
        self._changed: Final = changed

    def __getitem__(self, path: str) -> np.ndarray:
        recipe = self._changed.get(path)
        values = self._parameters[path]
        return values if recipe is None else recipe.stored_values(values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


class _Planned:
    """File that is not written yet, for the reader of its metadata."""

    def __init__(self, path: str, shapes: Mapping[str, tuple[int, ...]], further: Mapping[str, np.ndarray]) -> None:
        self.path: Final = path
        self.metadata: Final[dict[str, Any]] = {}
        self._shapes: Final = shapes
        self._further: Final = further

    def has(self, key: str) -> bool:
        """Returns whether the file will have a tensor."""
        return key in self._shapes or key in self._further

    def spec(self, key: str) -> TensorSpec:
        """Returns the shape of a tensor."""
        return TensorSpec(self._shapes[key] if key in self._shapes else self._further[key].shape, f32)

    def read(self, key: str) -> np.ndarray:
        """Returns one of the tensors that are not parameters."""
        return self._further[key]


def plan_gguf(model: Model[Any], values: Mapping[str, Any], where: str) -> GgufPlan:
    """Returns the file of a model.

    Args:
        model: modules, not packed.
        values: content of its config.json.
        where: path of config.json, for messages.

    Raises:
        ConfigError: GGUF has no architecture that computes the same.
    """
    config: Any = model.config
    if not isinstance(config, DecoderConfig):
        raise ConfigError(
            f"{where}: {config.architecture} is not written as GGUF: decoders are; give to=safetensors, and "
            "llama.cpp's convert_hf_to_gguf.py on the result"
        )
    raw, nearest = Raw(values), None
    for architecture in READERS.values():
        if architecture.encodes:
            continue
        differing, plan = _tried(model, architecture, raw, where)
        if plan is not None and not differing:
            return plan
        if differing and (nearest is None or len(differing) < len(nearest[1])):
            nearest = architecture.name, differing
    if nearest is None:
        raise ConfigError(
            f"{where}: {config.architecture} has no architecture of GGUF that Tapeline reads: give to=safetensors"
        )
    raise ConfigError(
        f"{where}: a GGUF file of architecture {nearest[0]} cannot state {', '.join(nearest[1])} of this "
        f"{config.architecture}: give to=safetensors"
    )


def _tried(
    model: Model[Any], architecture: GgufArchitecture, raw: Raw, where: str
) -> tuple[list[str], GgufPlan | None]:
    """Returns the fields of the configuration that a file would not say, and the file; nothing of other families."""
    config = model.config
    known = answers(config, raw)
    try:
        layout = GgufLayout(model, architecture)
        further = _further(config, architecture)
        file: Any = _Planned(where, layout.shapes, further)
        with asked_names() as asked:
            read = architecture.read(Source(file, ConfigFields(known, where)))
        if read["architectures"] != [config.architecture]:
            return [], None
        result = DecoderConfig.from_hf(read, where)
    except (TapelineError, LookupError, AssertionError, TypeError):
        return [], None  # the reader of another family
    differing = [
        field.name
        for field in dataclasses.fields(config)
        if field.name not in _UNCOMPARED
        and not _alike(getattr(config, field.name), getattr(result, field.name), config)
    ]
    refused = [key for key in CHANGING if key not in architecture.reads and key in asked and known.get(key)]
    written = asked | {key for key in ALWAYS if key not in CHANGING or key in architecture.reads}
    metadata = {f"{architecture.name}.{key}": value for key, value in known.items() if key in written}
    return [*differing, *refused], GgufPlan(architecture, metadata, layout, further)


def _alike(one: Any, other: Any, config: DecoderConfig) -> bool:
    """Returns whether two values are the same but for roundings to f32; scalings of RoPE by their frequencies."""
    if isinstance(one, Llama3Scaling | LongropeScaling) and isinstance(other, LongropeScaling):
        lengths = (config.rope.trained_length, 2)
        pairs = [
            [scaling.frequencies(config.rope.base, config.rope.rotated, length) for scaling in (one, other)]
            for length in lengths
        ]
        same = all(np.allclose(ours, theirs, rtol=1e-5) for ours, theirs in pairs)
        return same and abs(one.attention_factor - other.attention_factor) < _CLOSE * 10
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        return all(_alike(getattr(one, f.name), getattr(other, f.name), config) for f in dataclasses.fields(one))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_alike(a, b, config) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float | int):
        return abs(one - other) <= _CLOSE * max(abs(one), abs(other))
    return one == other


def _further(config: DecoderConfig, architecture: GgufArchitecture) -> dict[str, np.ndarray]:
    """Returns the tensors that are not made from parameters: RoPE's frequencies, and some that nothing reads."""
    scaling, rope = config.rope.scaling, config.rope
    if isinstance(scaling, Llama3Scaling):
        plain = plain_frequencies(rope.base, rope.rotated)
        return {"rope_freqs.weight": (plain / scaling.frequencies(rope.base, rope.rotated, 1)).astype(np.float32)}
    if isinstance(scaling, LongropeScaling):
        both = {"short": scaling.short_factors, "long": scaling.long_factors}
        return {f"rope_factors_{name}.weight": np.array(factors, np.float32) for name, factors in both.items()}
    if isinstance(scaling, ProportionalScaling):
        turned = int(rope.rotated * scaling.share / 2)
        rest = rope.rotated // 2 - turned
        return {"rope_freqs.weight": np.array([1.0] * turned + [_NOT_TURNED] * rest, np.float32)}
    return _unread(config) if architecture.name == _WITH_UNREAD else {}


def _unread(config: DecoderConfig) -> dict[str, np.ndarray]:
    """Returns keys and values of layers that share caches: llama.cpp wants them of a Gemma 3n, and reads none."""
    tensors: dict[str, np.ndarray] = {}
    for index, owner in enumerate(config.cache_owners):
        if owner is not None:
            rows = config.sizes_of(index).kv_heads * config.sizes_of(index).head_size
            tensors |= {f"blk.{index}.attn_{part}.weight": np.zeros((rows, config.hidden), np.float32) for part in "kv"}
            tensors[f"blk.{index}.attn_k_norm.weight"] = np.ones(config.sizes_of(index).head_size, np.float32)
    return tensors


def _single(key: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of a tensor in the file: convolutions are matrices."""
    return tuple(size for size in shape if size != 1) if _SINGLE.fullmatch(key) else shape
