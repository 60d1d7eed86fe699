"""Weights with LoRA adapters merged into them as they are read."""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from lang_core import (
    CheckpointError,
    PackedRows,
    StoredBytes,
    TensorSpec,
    WeightSource,
    check_rows,
    f32,
    matrix_rows_by,
    matrix_rows_of,
    near_names,
)
from transformer_core.checkpoints._adapter import Adapter
from transformer_core.checkpoints._low_rank import Change, Decomposed, LowRank, Replacement, SomeRows, Sum

_NUMBER: Final = re.compile(r"\d+")
_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
# Prefixes that a checkpoint's keys lack, or have beyond the paths of the model that was trained.
_ABOVE: Final = ("", "model.", "transformer.", "gpt_neox.", "language_model.")
_SHOWN: Final = 6
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class AdaptedWeights:
    """Weights of a checkpoint, changed by adapters a few rows at a time. Implements ``lang_core.WeightSource``.

    A changed tensor is f32 and not packed, whatever the checkpoint stores. Those that may go with it into one parameter
    (the other experts) are f32, too; all others are the source's.

    Args:
        source: weights of the checkpoint.
        changes: changes of each tensor, in order.
        loaded: tensors that are in place of the source's before anything is changed.
        adapters: adapters that change each tensor, with the tensor's name in the adapter.
    """

    def __init__(
        self,
        source: WeightSource,
        changes: Mapping[str, Sequence[Change]],
        loaded: Mapping[str, Change] = _NOTHING,
        adapters: Mapping[str, Sequence[tuple[Adapter, str]]] = _NOTHING,
    ) -> None:
        self._source: Final = source
        self._changes: Final = {**dict.fromkeys(loaded, ()), **changes}
        self._loaded: Final = loaded
        self._adapters: Final = adapters
        self._families: Final = {_NUMBER.sub("*", key) for key in self._changes}

    @property
    def changed(self) -> Iterable[str]:
        """Keys of the tensors that adapters change."""
        return self._changes.keys()

    def keys(self) -> Iterator[str]:
        """Yields the keys of the source."""
        return self._source.keys()

    def has(self, key: str) -> bool:
        """Returns whether the source has a key."""
        return self._source.has(key)

    def spec(self, key: str) -> TensorSpec:
        """Returns the source's shape, in f32 if adapters change the tensor or one like it."""
        spec = self._source.spec(key)
        return TensorSpec(spec.shape, f32) if self._is_converted(key) and spec.dtype.is_floating else spec

    def encoding(self, key: str) -> str | None:
        """Returns the encoding that the source stores a tensor in."""
        return self._source.encoding(key)

    def stored_bytes(self, key: str) -> int | None:
        """Returns the bytes of a tensor in the checkpoint; None if not known."""
        return self._source.stored_bytes(key) if isinstance(self._source, StoredBytes) else None

    def read(self, key: str) -> np.ndarray:
        """Reads the whole tensor, of its spec's shape."""
        shape = self.spec(key).shape
        return self.read_rows(key, 0, shape[0]) if shape and self._is_converted(key) else self._source.read(key)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the first axis, with the updates of adapters."""
        if not self._is_converted(key) or not self._source.spec(key).dtype.is_floating:
            return self._source.read_rows(key, start, stop)
        check_rows(self.spec(key).shape, start, stop, key, self._source.origin(key))
        if key not in self._changes:
            return self._source.read_rows(key, start, stop).astype(np.float32, copy=False)
        changed = self._base(key, start, stop)
        for change in self._changes[key]:
            change.apply(changed, start, lambda first, last: self._base(key, first, last))
        return changed

    def _base(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows in f32 as they are before anything is adapted."""
        rows = np.array(self._source.read_rows(key, start, stop), np.float32)
        if key in self._loaded:
            self._loaded[key].apply(rows, start, lambda first, last: rows)
        return rows

    def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of a tensor as a matrix, [product of all dims but the last, last dim]; see ``MatrixRows``."""
        if key in self._changes:
            return matrix_rows_by(self.read_rows, key, self.spec(key).shape, start, stop)
        rows = matrix_rows_of(self._source, key, start, stop)
        return rows.astype(self.spec(key).dtype.numpy, copy=False)

    def packed_as(self, key: str) -> str | None:
        """Returns the encoding of the source's packed rows; None if adapters change them."""
        source = self._source
        return None if key in self._changes or not isinstance(source, PackedRows) else source.packed_as(key)

    def read_packed_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads packed rows that adapters do not change; see ``PackedRows``."""
        assert isinstance(self._source, PackedRows)
        return self._source.read_packed_rows(key, start, stop)

    def origin(self, key: str) -> str:
        """Returns the source's origin of a key, and the adapters that change the tensor.

        An adapter that has NaN or infinity for the tensor is named alone.
        """
        origin = self._source.origin(key)
        for adapter, name in self._adapters.get(key, ()):
            damaged = adapter.nonfinite(name)
            if damaged is not None:
                return f"adapter {adapter.path} (NaN or infinity in {damaged})"
        paths = dict.fromkeys(adapter.path for adapter, _ in self._adapters.get(key, ()))
        return f"{origin} with adapter {', '.join(paths)}" if paths else origin

    def _is_converted(self, key: str) -> bool:
        return _NUMBER.sub("*", key) in self._families


def adapt(
    source: WeightSource,
    adapters: Sequence[Adapter],
    absent_layers: Sequence[int] = (),
    shared: Mapping[str, str] = _NOTHING,
    transposed: Container[str] | None = None,
) -> AdaptedWeights:
    """Returns the weights with adapters merged in the order given.

    Args:
        source: weights under the names of the checkpoint, or of the model that the adapters were trained on.
        adapters: adapters.
        absent_layers: numbers of layers that the source leaves out; what adapters have for them is left out, too.
        shared: key of each tensor that was one with another when the adapters were trained: rows that are loaded into
            either are loaded into both.
        transposed: keys of the matrices that are stored [inputs, outputs]; None takes ``fan_in_fan_out`` of the
            adapter for all. PEFT stores the value for the last module there, and uses the class of each module.

    Raises:
        CheckpointError: a tensor for an adapter's update is missing or has another shape.
    """
    changes: dict[str, list[Change]] = defaultdict(list)
    loaded: dict[str, Replacement] = {}
    changed_by: dict[str, list[tuple[Adapter, str]]] = defaultdict(list)
    partners = {**shared, **{other: key for key, other in shared.items()}}
    for adapter in adapters:
        matcher, earlier = _Matcher(source, adapter, frozenset(absent_layers), transposed), set(changes)
        for key, name, change in matcher.loaded():
            if not _same(loaded.get(key, change), change):
                raise CheckpointError(
                    f"adapter {adapter.path}: has other rows for {key!r} than an adapter before it: merge one of them"
                )
            for tensor in filter(None, (key, partners.get(key))):
                loaded[tensor] = change
                changed_by[tensor].append((adapter, name))
        for key, name, change in matcher.changes():
            if isinstance(change, Replacement) and key in earlier:
                raise CheckpointError(
                    f"adapter {adapter.path}: replaces {key!r} as a whole, which an adapter before it changes: merge "
                    "one of them"
                )
            changes[key].append(change)
            changed_by[key].append((adapter, name))
        rows = {key: (name, change) for key, name, change in matcher.rows()}
        for key, (name, change) in rows.items():
            partner = partners.get(key)
            for tensor in (key, *([partner] if partner is not None and partner not in rows else ())):
                if tensor in changes:
                    raise CheckpointError(
                        f"adapter {adapter.path}: replaces rows of {tensor!r}, which "
                        f"{'an adapter before it' if tensor in earlier else 'it'} changes otherwise: merge it with PEFT"
                    )
                changes[tensor].append(change)
                changed_by[tensor].append((adapter, name))
        matcher.check()
    return AdaptedWeights(source, changes, loaded, changed_by)


def _same(one: Replacement, other: Replacement) -> bool:
    return one is other or np.array_equal(one.read(), other.read())


def adapts(adapter: Adapter, keys: Container[str]) -> bool:
    """Returns whether an adapter changes one of these tensors of a checkpoint."""
    return any(key in keys for name in adapter.names for key in candidate_names(name))


class _Matcher:
    """Finds the tensors that an adapter changes."""

    def __init__(
        self, source: WeightSource, adapter: Adapter, absent: frozenset[int], transposed: Container[str] | None
    ) -> None:
        self._source: Final = source
        self._transposed: Final = transposed
        self._adapter: Final = adapter
        self._absent: Final = absent
        self._unknown: Final[list[str]] = []

    def loaded(self) -> Iterator[tuple[str, str, Replacement]]:
        """Yields key and name of each tensor that is loaded before anything is changed, with its rows."""
        yield from self._replacements(self._adapter.loaded)

    def changes(self) -> Iterator[tuple[str, str, Change]]:
        """Yields key and name of each tensor with its change, replacements first; records tensors without one."""
        adapter = self._adapter
        yield from self._replacements(adapter.replaced)
        for module, roles in adapter.low_rank.items():
            key = self._key(f"{module}.weight")
            if key is not None:
                yield key, f"{module}.weight", self._low_rank(key, module, roles)
            bias = self._key(f"{module}.bias") if "bias" in roles else None
            if bias is not None:
                self._check_shape(bias, roles["bias"], adapter.file.spec(roles["bias"]).shape)
                scale = adapter.ranks[module].scaling * adapter.weight
                yield bias, f"{module}.bias", Sum(adapter.file, roles["bias"], scale)

    def rows(self) -> Iterator[tuple[str, str, SomeRows]]:
        """Yields key and name of each tensor of which rows are replaced, with these rows."""
        file = self._adapter.file
        for name, (stored, ids) in self._adapter.rows.items():
            key = self._key(name)
            if key is None:
                continue
            count = self._source.spec(key).shape[0]
            self._check_shape(key, stored, (count, *file.spec(stored).shape[1:]))
            if ids and max(ids) >= count:
                raise CheckpointError(
                    f"adapter {self._adapter.path}: {stored!r} has a row for token {max(ids)}, and {key!r} in "
                    f"{self._source.origin(key)} has {count}{self._trained_on()}"
                )
            yield key, name, SomeRows(file, stored, ids)

    def _replacements(self, tensors: Mapping[str, str]) -> Iterator[tuple[str, str, Replacement]]:
        file = self._adapter.file
        for name, stored in tensors.items():
            key = self._key(name)
            if key is not None:
                self._check_shape(key, stored, file.spec(stored).shape)
                yield key, name, Replacement(file, stored)

    def check(self) -> None:
        """Raises CheckpointError if tensors of the adapter lack a place."""
        if not self._unknown:
            return
        keys = list(self._source.keys())
        shown = [f"{name!r}{near_names(name, keys)}" for name in self._unknown[:_SHOWN]]
        more = f" and {len(self._unknown) - _SHOWN} more" if len(self._unknown) > _SHOWN else ""
        raise CheckpointError(
            f"adapter {self._adapter.path}: the model has no tensor for {', '.join(shown)}{more}{self._trained_on()}"
        )

    def _low_rank(self, key: str, module: str, roles: Mapping[str, str]) -> Change:
        adapter, embedding = self._adapter, "left_columns" in roles
        transposed = adapter.config.transposed if self._transposed is None else key in self._transposed
        turned = embedding or transposed
        if embedding:
            left, right = roles["left_columns"], roles["right_columns"]
        else:
            left, right = (roles["right"], roles["left"]) if turned else (roles["left"], roles["right"])
        shapes = [adapter.file.spec(stored).shape for stored in (left, right)]
        shape = (shapes[0][1], shapes[1][0]) if turned else (shapes[0][0], shapes[1][1])
        self._check_shape(key, module, shape)
        scale = adapter.ranks[module].scaling * adapter.weight
        product = LowRank(adapter.file, left, right, scale, turned=turned)
        if "magnitude" not in roles:
            return product
        magnitude = adapter.file.spec(roles["magnitude"])
        if magnitude.size != shape[1 if turned else 0]:
            raise CheckpointError(
                f"{adapter.path}: {roles['magnitude']!r} has shape {list(magnitude.shape)}, expected one number per "
                f"output of a matrix {list(shape)}: fetch the adapter again"
            )
        return Decomposed(adapter.file, roles["magnitude"], product, shape[0], by_column=turned)

    def _check_shape(self, key: str, name: str, shape: tuple[int, ...]) -> None:
        stored = self._source.spec(key)
        if stored.shape != shape or not stored.dtype.is_floating:
            raise CheckpointError(
                f"adapter {self._adapter.path}: {name!r} is for a tensor of shape {list(shape)}, and {key!r} in "
                f"{self._source.origin(key)} is {stored.dtype.name} {list(stored.shape)}{self._trained_on()}"
            )

    def _key(self, name: str) -> str | None:
        """Returns the key of a tensor of the model that was trained; None if the source leaves it out."""
        key = next(filter(self._source.has, candidate_names(name)), None)
        if key is None and not self._is_absent(name):
            self._unknown.append(name)
        return key

    def _is_absent(self, name: str) -> bool:
        match = _LAYER.search(name)
        return match is not None and int(match[1]) in self._absent

    def _trained_on(self) -> str:
        base = self._adapter.config.base
        told = f" It was trained on {base!r}." if base else ""
        return f": the adapter is of another model, or of a form of it with other tensors.{told}"


def candidate_names(name: str) -> Iterator[str]:
    """Yields the keys under which checkpoints may have a tensor of a model."""
    yield from (f"{above}{name}" for above in _ABOVE)
    _, _, inner = name.partition(".")
    yield inner
