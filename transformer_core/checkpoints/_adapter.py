"""LoRA adapters in PEFT's format: tensors sorted by the module that they change."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, Self

import numpy as np

from lang_core import CheckpointError, ConfigError, InputError
from transformer_core.checkpoints._adapter_config import CONFIG_FILE, AdapterConfig, ModuleRank, read_adapter_config
from transformer_core.checkpoints._file import SafetensorsFile

WEIGHTS_FILE: Final = "adapter_model.safetensors"
_PICKLE: Final = "adapter_model.bin"
_PREFIX: Final = "base_model.model."
_WRAPPED: Final = "base_layer."
# Parts of the names of a saved module that PEFT also stores by its own names if it saves the embeddings.
_COPY: Final = ".modules_to_save."
_ORIGINAL: Final = ".original_module."
_ELEMENTS_AT_ONCE: Final = 1 << 20
# Ends of the keys of a module's own tensors, with the roles that they have here.
_ROLES: Final = {
    "lora_A.weight": "right",
    "lora_B.weight": "left",
    "lora_B.bias": "bias",
    "lora_embedding_A": "left_columns",
    "lora_embedding_B": "right_columns",
    "lora_magnitude_vector": "magnitude",
    "lora_magnitude_vector.weight": "magnitude",
}
_UNBUILT: Final = {"lora_E": "AdaLoRA", "experts.lora_": "experts"}
_TOKEN_ADAPTER: Final = "token_adapter."  # part of the names of a module of which rows are trained
_TOKENS: Final = ".trainable_tokens_delta"  # the rows themselves, whatever the name says


class Adapter:
    """LoRA adapter of a directory, mapped and checked in itself.

    Args:
        directory: holds adapter_config.json and adapter_model.safetensors.
        weight: factor of everything that it adds.

    Attributes:
        path: path of the directory.
        weight: factor of everything that it adds.
        config: its settings.
        low_rank: keys of the tensors of each adapted module, by module and role.
        ranks: rank and scaling of each of these modules.
        replaced: keys of tensors that take the place of the model's, by the name of the model's: whole modules.
        loaded: the same of tensors that are loaded into the model before anything is adapted, such as rows of an
            adapted embedding; a tensor that is tied to such a tensor is changed, too.
        rows: keys of rows of tokens and the tokens' ids, by the name of the model's tensor that has them. A tensor that
            is tied to it is changed, too, unless the adapter has other rows for that.

    Raises:
        CheckpointError: a file is missing or damaged, or tensors contradict the settings or each other.
        ConfigError: the adapter is of another kind, or has a setting that is not supported.
        InputError: the weight is not 1 if only 1 is defined: with DoRA, or if tensors are replaced.
    """

    def __init__(self, directory: str | os.PathLike[str], weight: float = 1.0) -> None:
        self.path: Final = os.fspath(directory)
        self.weight: Final = weight
        self.config: Final[AdapterConfig] = read_adapter_config(directory)
        self._file: Final = _opened(self.path)
        self.low_rank: Final[Mapping[str, Mapping[str, str]]]
        self.replaced: Final[Mapping[str, str]]
        self.loaded: Final[Mapping[str, str]]
        self.rows: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = self._tokens()
        self.low_rank, self.replaced, self.loaded = self._sorted()
        self.ranks: Final[Mapping[str, ModuleRank]] = self.config.ranks(self.low_rank)
        for module, roles in self.low_rank.items():
            self._check(module, roles)
        self._check_weight()

    @property
    def file(self) -> SafetensorsFile:
        """The file of the tensors."""
        return self._file

    def close(self) -> None:
        """Releases the map of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def names(self) -> Iterator[str]:
        """Names of the model's tensors that the adapter changes, biases aside."""
        yield from self.replaced
        yield from self.loaded
        yield from self.rows
        yield from (f"{module}.weight" for module in self.low_rank)

    def nonfinite(self, name: str) -> str | None:
        """Returns a key of the adapter's tensors for a tensor of the model that has NaN or infinity; else None."""
        module, _, kind = name.rpartition(".")
        roles = self.low_rank.get(module, {})
        keys = [*([roles["bias"]] if kind == "bias" and "bias" in roles else [])]
        if kind == "weight":
            keys += [key for role, key in roles.items() if role != "bias"]
        keys += [known[name] for known in (self.replaced, self.loaded) if name in known]
        keys += [self.rows[name][0]] if name in self.rows else []
        return next((key for key in keys if not self._is_finite(key)), None)

    def _is_finite(self, key: str) -> bool:
        spec = self._file.spec(key)
        rows = spec.shape[0] if spec.shape else 1
        step = max(1, _ELEMENTS_AT_ONCE * rows // max(1, spec.size))
        starts = range(0, rows, step)
        return all(np.isfinite(self._file.read_rows(key, at, min(rows, at + step))).all() for at in starts)

    def _tokens(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Returns key and token ids of the rows that the adapter has, by the name of the tensor that has such rows."""
        rows: dict[str, tuple[str, tuple[int, ...]]] = {}
        for key in self._file.keys():  # noqa: SIM118
            name = _plain(key)
            if not name.endswith(_TOKENS):
                continue
            module, shape = name.removesuffix(_TOKENS), self._file.spec(key).shape
            ids = next(
                (ids for end, ids in self.config.tokens.items() if not end or f".{module}".endswith(f".{end}")), ()
            )
            if len(shape) != 2 or shape[0] != len(ids):
                raise CheckpointError(
                    f"{self._file.path}: {key!r} has shape {list(shape)}, and {CONFIG_FILE} has {len(ids)} token ids "
                    f"for {module!r} (trainable_token_indices): fetch the adapter again"
                )
            rows[f"{module}.weight"] = key, ids
        return rows

    def _sorted(self) -> tuple[dict[str, dict[str, str]], dict[str, str], dict[str, str]]:
        low_rank: dict[str, dict[str, str]] = defaultdict(dict)
        replaced: dict[str, str] = {}
        originals: dict[str, str] = {}
        copies: set[str] = set()
        for key in self._file.keys():  # noqa: SIM118
            name = _plain(key)
            _check_built(self._file.path, key, name)
            if name.endswith(_TOKENS):
                continue
            if _ORIGINAL in name:
                originals[name.replace(_ORIGINAL, ".")] = key
                continue
            if _COPY in name:
                name = name.replace(_COPY, ".")
                copies.add(name)
                if self._file.has(key.replace(_COPY, ".")):
                    continue  # PEFT reads the tensor of the plain name
            module, role = _split(name)
            known = replaced.setdefault(name, key) if role is None else low_rank[module].setdefault(role, key)
            if known != key and not self._are_equal(known, key):
                raise CheckpointError(
                    f"{self._file.path}: {known!r} and {key!r} are names of one tensor, with different values: fetch "
                    "it again"
                )
        whole = {name for name in replaced if name in copies or self._is_saved(name.rpartition(".")[0], low_rank)}
        saved = {name: key for name, key in replaced.items() if name in whole}
        loaded = {name: key for name, key in replaced.items() if name not in whole}
        return dict(low_rank), saved, {**originals, **loaded}

    def _are_equal(self, one: str, other: str) -> bool:
        """Returns whether two keys have the same values; PEFT stores magnitudes of tied modules under two names."""
        return self._file.spec(one) == self._file.spec(other) and np.array_equal(
            self._file.read(one), self._file.read(other)
        )

    def _is_saved(self, module: str, low_rank: Mapping[str, object]) -> bool:
        """Returns whether an adapter holds a copy of a module, or of a module around it, in place of the model's."""
        parts = module.split(".")
        paths = [".".join(parts[: end + 1]) for end in range(len(parts))]
        return module not in low_rank and any(path.endswith(self.config.saved) for path in paths)

    def _check(self, module: str, roles: Mapping[str, str]) -> None:
        """Checks that a module has both matrices, of the rank that the settings say."""
        pairs = (("left", "right"), ("left_columns", "right_columns"))
        pair = next((pair for pair in pairs if pair[0] in roles or pair[1] in roles), pairs[0])
        missing = [role for role in pair if role not in roles]
        if missing:
            raise CheckpointError(
                f"{self._file.path}: {module!r} lacks one of its two matrices: fetch the adapter again"
            )
        if self.config.decomposed is not ("magnitude" in roles):
            raise CheckpointError(
                f"{self._file.path}: {module!r} has {'a' if 'magnitude' in roles else 'no'} magnitude vector, and "
                f"use_dora is {self.config.decomposed}: fetch the adapter again"
            )
        shapes = {role: self._file.spec(roles[role]).shape for role in pair}
        ranks = {"left": shapes[pair[0]][-1:], "right": shapes[pair[1]][:1]}
        if pair is pairs[1]:
            ranks = {"left": shapes[pair[0]][:1], "right": shapes[pair[1]][-1:]}
        rank = self.ranks[module].rank
        if any(len(shape) != 2 for shape in shapes.values()) or set(ranks.values()) != {(rank,)}:
            told = " and ".join(str(list(shape)) for shape in shapes.values())
            raise CheckpointError(
                f"{self._file.path}: {module!r} has matrices {told}, and rank {rank} in {CONFIG_FILE}"
            )

    def _check_weight(self) -> None:
        if self.weight == 1.0:
            return
        if self.config.decomposed:
            raise InputError(f"adapter {self.path}: weight {self.weight:g} of a DoRA adapter: only weight 1 is defined")
        if self.replaced or self.loaded or self.rows:
            name = next(iter([*self.replaced, *self.loaded, *self.rows]))
            kind = "rows of" if name in self.rows else "as a whole"
            told = f"{kind} {name!r}" if name in self.rows else f"{name!r} {kind}"
            raise InputError(
                f"adapter {self.path}: weight {self.weight:g}, and it replaces {told}: only weight 1 is defined"
            )


def _opened(directory: str) -> SafetensorsFile:
    path = os.path.join(directory, WEIGHTS_FILE)
    if not os.path.exists(path) and os.path.exists(os.path.join(directory, _PICKLE)):
        raise CheckpointError(
            f"{directory}: has {_PICKLE} and no {WEIGHTS_FILE}: a pickle can run code and is never loaded: save the "
            "adapter with safe_serialization=True"
        )
    return SafetensorsFile(path)


def _plain(key: str) -> str:
    """Returns the name of a tensor without the parts that PEFT puts around modules."""
    name = key.removeprefix(_PREFIX)
    for part in (_TOKEN_ADAPTER, _WRAPPED):
        name = name.replace(f".{part}", ".")
    return name


def _check_built(path: str, key: str, name: str) -> None:
    kind = next((kind for text, kind in _UNBUILT.items() if text in name), None)
    if kind is not None:
        raise ConfigError(f"{path}: {key!r}: {kind} is not merged; merge the adapter with PEFT and export the result")


def _split(name: str) -> tuple[str, str | None]:
    """Returns the module and the role of a tensor; an empty role if it replaces a tensor of the model."""
    for end, role in _ROLES.items():
        if name.endswith(f".{end}"):
            return name[: -len(end) - 1], role
    return name, None
