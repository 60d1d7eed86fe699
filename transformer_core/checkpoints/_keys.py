"""Names of stored tensors that are not the model's: renamed modules and keys, fused projections, experts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import WeightSource
from transformer_core.checkpoints._composed import RecipeOf
from transformer_core.checkpoints._expert_recipes import InputMajor
from transformer_core.checkpoints._recipes import Cut, Interleaved, Recipe, Reshaped, Stacked, Stored


class RenamedKeys:
    """Recipes of modules that are stored under other names.

    Args:
        renamed: last part of a module's path in the checkpoint, by that in the model.
    """

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed: Final = renamed

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter of such a module; None for all others."""
        *above, module, kind = ("", *name.split("."))
        stored = self._renamed.get(module)
        return None if stored is None else Stored(".".join([*filter(None, above), stored, kind]), shape)


class RenamedParts:
    """Recipes of parameters of which checkpoints name a part of the path otherwise, in one of several ways.

    Args:
        parts: the ways, by the part of a path in the model; the first is that of a checkpoint that has neither.
    """

    def __init__(self, parts: Mapping[str, Sequence[str]]) -> None:
        self._parts: Final = parts

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter with such a part; None for all others."""
        part = next((part for part in self._parts if part in name), None)
        if part is None:
            return None
        keys = [name.replace(part, way) for way in self._parts[part]]
        return Stored(next(filter(source.has, keys), keys[0]), shape)


def first_of(*recipes: RecipeOf) -> RecipeOf:
    """Returns a ``RecipeOf`` that asks several in turn, and gives the first recipe."""

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        return next((recipe for ask in recipes if (recipe := ask(name, shape, source)) is not None), None)

    return recipe_of


class FusedKeys:
    """Recipes of projections that are stored fused, weights and biases alike.

    Args:
        fused: parts of each stored module and their numbers of rows, in order, e.g.
            ``{"mlp.gate_up_proj": [("gate_proj", F), ("up_proj", F)]}``. In the model the parts are where the fused
            module is in the checkpoint: ``mlp.gate_proj``.
    """

    def __init__(self, fused: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        self._places: Final[dict[str, tuple[str, int, int, int]]] = {}
        for whole, parts in fused.items():
            rows, start = sum(size for _, size in parts), 0
            for part, size in parts:
                self._places[f"{whole.rpartition('.')[0]}.{part}"] = whole, rows, start, start + size
                start += size

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a part; None for all other parameters."""
        *above, module, part, kind = ("", "", *name.split("."))
        place = self._places.get(f"{module}.{part}")
        if place is None:
            return None
        whole, rows, start, stop = place
        key = ".".join([*filter(None, above), whole, kind])
        return Cut(key, (rows, *shape[1:]), 0, start, stop)


_NUMBER: Final = re.compile(r"\.(\d+)(?=\.|$)")

# Names of a norm's parameters in old checkpoints.
_OLD_KINDS: Final = {"weight": "gamma", "bias": "beta"}


class RenamedModules:
    """Recipes of a model with other names for all modules in its checkpoints.

    Args:
        renamed: path of a module in the checkpoint, by that in the model, with ``{}`` for the number of a layer.
            Paths of parameters count before those of modules.
        above: prefixes that the checkpoint's keys may have; the first one that is there counts.
        optional: prefix of the stored names that the checkpoint's keys may lack.
    """

    def __init__(self, renamed: Mapping[str, str], above: Sequence[str] = (), *, optional: str = "") -> None:
        self._renamed: Final = renamed
        self._above: Final = tuple(above)
        self._optional: Final = optional

    def key(self, name: str, source: WeightSource) -> str:
        """Returns the stored key of a parameter."""
        module, _, kind = name.rpartition(".")
        number = _NUMBER.search(module)
        path = module if number is None else f"{module[: number.start()]}.{{}}{module[number.end() :]}"
        if name in self._renamed:
            stored = self._renamed[name]
        elif f"{path}.{kind}" in self._renamed:
            stored = self._renamed[f"{path}.{kind}"].format("" if number is None else number[1])
        elif path in self._renamed:
            stored = f"{self._renamed[path].format('' if number is None else number[1])}.{kind}"
        else:
            stored = name
        return self._found(stored, source)

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter: it is stored as it is."""
        return Stored(self.key(name, source), shape)

    def _found(self, key: str, source: WeightSource) -> str:
        module, _, kind = key.rpartition(".")
        old = f"{module}.{_OLD_KINDS.get(kind, kind)}"
        places = [f"{above}{path}" for path in (key, old) for above in ("", *self._above)]
        places.append(key.removeprefix(self._optional))
        return next((place for place in places if source.has(place)), places[0])


class GroupedParts:
    """Recipes of projections that are stored as one, group after group, such as each head's query, key and value.

    Args:
        keys: names of the checkpoint's modules; the fused one is ``<module of the projections>.<fused>`` in them.
        fused: last part of the fused module's path.
        groups: number of groups.
        parts: first part in a group, and number of parts, of each projection; all parts have one size.
    """

    def __init__(self, keys: RenamedModules, fused: str, groups: int, parts: Mapping[str, tuple[int, int]]) -> None:
        self._keys, self._fused, self._groups, self._parts = keys, fused, groups, parts
        self._total: Final = sum(count for _, count in parts.values())

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a projection's parameter; None for all others."""
        *above, projection, kind = ("", *name.split("."))
        part = self._parts.get(projection)
        if part is None:
            return None
        key = self._keys.key(".".join([*filter(None, above), self._fused, kind]), source)
        whole = (shape[0] // part[1] * self._total, *shape[1:])
        return Interleaved(key, whole, self._groups, self._total, *part)


_LAYER: Final = re.compile(r"(.*\.)?mlp\.(experts\.(?P<projection>gate_proj|up_proj|down_proj)|gate\.\w+)")


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    """Stored keys of a family's experts, which the model has as ``mlp.experts.gate_proj`` [E, F, D] and so on.

    Two forms are known: one tensor per expert (``mlp.experts.3.gate_proj.weight`` [F, D]), as published, and one tensor
    for all (``mlp.experts.gate_up_proj`` [E, 2 F, D] and ``mlp.experts.down_proj`` [E, D, F]), which is how
    transformers 5 holds them.

    Attributes:
        layer: module that stands for ``mlp`` in the keys of the form with one tensor per expert.
        gate: name of the gate projection in that form.
        up: name of the up projection.
        down: name of the down projection.
        correction: name of the router's correction in the layer.
    """

    layer: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    correction: str = "gate.e_score_correction_bias"

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter of the router or the experts; None for all others."""
        match = _LAYER.fullmatch(name)
        if match is None:
            return None
        prefix, projection = match[1] or "", match["projection"]
        if projection is None:
            return None if source.has(name) else self._routing(prefix, name[len(prefix) + 4 :], shape, source)
        if source.has(f"{prefix}mlp.experts.down_proj"):
            return _fused(f"{prefix}mlp.experts.gate_up_proj", projection, shape)
        stored = {"gate_proj": self.gate, "up_proj": self.up, "down_proj": self.down}[projection]
        keys = [f"{prefix}{self.layer}.experts.{expert}.{stored}.weight" for expert in range(shape[0])]
        return Stacked(keys, shape[1:])

    def _routing(self, prefix: str, path: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
        """Returns the recipe of the router's ``path`` in the layer; a correction may be stored as one row."""
        key = f"{prefix}{self.layer}.{self.correction if path == _CORRECTION else path}"
        row = source.has(key) and len(source.spec(key).shape) > len(shape)
        return Reshaped(key, (1, *shape), shape) if row else Stored(key, shape)


_CORRECTION: Final = "gate.e_score_correction_bias"


def _fused(key: str, projection: str, shape: tuple[int, ...]) -> Recipe | None:
    if projection == "down_proj":
        return None
    experts, inner, size = shape
    begin = 0 if projection == "gate_proj" else inner
    return Cut(key, (experts, 2 * inner, size), 1, begin, begin + inner)


_EXPERTS: Final = re.compile(r"(?P<experts>.*\.experts)\.(?P<projection>gate_proj|up_proj)")


def fused_experts(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of experts' gates or up projections, stored as one ``gate_up_proj``; None for all others."""
    match = _EXPERTS.fullmatch(name)
    return None if match is None else _fused(f"{match['experts']}.gate_up_proj", match["projection"], shape)


_PART: Final = re.compile(r"(?P<layer>.*\.)mlp\.(experts\.(?P<name>gate|up|down)_proj|(?P<path>.*))")
_INPUT_MAJOR: Final = {"gate.": "router.", "shared_experts.": "shared_expert."}


class InputMajorKeys:
    """Recipes of feed-forwards with experts stored input-major: gates, then ups in one tensor (Llama 4)."""

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter of a feed-forward; None for all others."""
        match = _PART.fullmatch(name)
        if match is None:
            return None
        above, projection = f"{match['layer']}feed_forward.", match["name"]
        if projection is None:
            first, dot, rest = match["path"].partition(".")
            return Stored(f"{above}{_INPUT_MAJOR.get(first + dot, first + dot)}{rest}", shape)
        inner = shape[1]
        if projection == "down":
            return InputMajor(f"{above}experts.down_proj", shape, 0, inner)
        return InputMajor(f"{above}experts.gate_up_proj", shape, inner if projection == "up" else 0, 2 * inner)
