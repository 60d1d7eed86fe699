"""File that keeps caches after a prompt for the next run; docs/prompt-cache.md describes its format."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from generation.engine import ModelRunner, RowPrefix
from lang_core import CheckpointError, InputError, TensorSpec
from tapeline.bundle import ARCHIVE, Bundle
from tapeline.cli import check_writable
from tapeline.runners import ENCODE
from transformer_core.checkpoints import SafetensorsFile, write_safetensors

FORMAT: Final = "tapeline.prompt_cache"
SCHEMA: Final = "1"

_TOKENS: Final = "token_ids"
_SUM: Final = "sha256"  # of the other tensors, in the order of the file; it is the last one
_REGIME: Final = "rope_regime"  # as of the memory; 0 if absent
_REDO: Final = "delete it, or name another file"
_ADVICE: Final = ": download or convert the file again"  # what is said of weights


class PromptCacheFile:
    """Prompt cache of one bundle: entries of a row, made by its module on this device's target."""

    def __init__(self, path: Path, bundle: Bundle, module: str) -> None:
        """Reads nothing yet.

        Args:
            path: path of the file.
            bundle: the bundle.
            module: name of the bundle's file that runs.

        Raises:
            InputError: a row depends on more than a prompt: the bundle has an encoder.
        """
        if ENCODE in [point.name for point in bundle.config.entry_points]:
            raise InputError(
                f"prompt_cache={path}: what the caches of {bundle.path} hold depends on what its encoder was given, "
                "not on the prompt alone: leave it out"
            )
        self._path: Final = path
        self._bundle: Final = bundle
        self._module: Final = module
        self._row: Mapping[str, tuple[TensorSpec, int | None]] = {}  # caches, and their axes of positions in a row
        self._kept: RowPrefix | None = None

    def load(self, runner: ModelRunner, specs: Mapping[str, TensorSpec]) -> RowPrefix | None:
        """Returns the file's entries for a runner of the bundle; None without a file.

        Args:
            runner: the runner.
            specs: specs of the caches and states of all rows, by name.

        Raises:
            InputError: the file is not a prompt cache, or damaged, of another schema, or another bundle's; or it could
                not be written later.
        """
        check_writable("prompt_cache", self._path)
        self._row = {name: (spec, axis) for (name, spec), axis in zip(specs.items(), runner.position_axes, strict=True)}
        if not self._path.exists():
            return None
        try:
            with SafetensorsFile(self._path) as file:
                self._check(file.metadata)
                self._check_specs(file, runner)
                self._check_sum(file)
                token_ids = file.read(_TOKENS).astype(np.int64)
                arrays = [file.read(name)[0] for name in self._row]
                self._kept = RowPrefix(token_ids, arrays, int(file.metadata.get(_REGIME, "0")))
        except CheckpointError as error:
            reason = str(error).removesuffix(_ADVICE)
            raise InputError(f"`prompt_cache`: {reason}: the file is damaged, or no prompt cache: {_REDO}") from None
        return self._kept

    def save(self, prefix: RowPrefix) -> bool:
        """Writes a prefix and returns True, or False if the file has it already.

        Raises:
            InputError: the file cannot be written.
        """
        if self._kept is not None and _continues(self._kept, prefix):
            return False
        token_ids = prefix.token_ids.astype(np.int32)
        arrays = {name: array[None] for name, array in zip(self._row, prefix.arrays, strict=True)}
        arrays[_TOKENS] = token_ids
        specs = {_TOKENS: TensorSpec(token_ids.shape, "i32"), **self._specs(len(token_ids))}
        specs[_SUM] = TensorSpec((hashlib.sha256().digest_size,), "u8")
        digest = hashlib.sha256()

        def chunks(key: str, spec: TensorSpec) -> Iterator[np.ndarray]:
            del spec
            if key == _SUM:
                yield np.frombuffer(digest.digest(), np.uint8)
                return
            array = np.ascontiguousarray(arrays[key])
            digest.update(_bytes(array))
            yield array

        metadata = {"format": FORMAT, "schema": SCHEMA, "bundle": self._identity()}
        if prefix.regime:
            metadata[_REGIME] = str(prefix.regime)
        write_safetensors(self._path, specs, chunks, metadata=metadata)
        self._kept = prefix
        return True

    def _check(self, metadata: dict[str, str]) -> None:
        where = f"prompt_cache={self._path}"
        if metadata.get("format") != FORMAT:
            raise InputError(f"{where}: a safetensors file, but no prompt cache, and it is not written over: {_REDO}")
        if metadata.get("schema") != SCHEMA:
            raise InputError(
                f"{where}: schema {metadata.get('schema')!r}, this version reads schema {SCHEMA!r}: {_REDO}"
            )
        if metadata.get("bundle") != self._identity():
            raise InputError(
                f"{where}: made with another bundle, or before this one was exported anew, or on a device of another "
                f"target; its caches are of no use here: {_REDO}"
            )

    def _check_specs(self, file: SafetensorsFile, runner: ModelRunner) -> None:
        tokens = file.spec(_TOKENS).size
        wanted = self._specs(tokens)
        specs = {name: file.spec(name) for name in wanted}
        wrong = [name for name, spec in wanted.items() if specs[name] != spec]
        if wrong or tokens % runner.chunks[0] or tokens > runner.capacity:
            named = f"{wrong[0]!r} is {specs[wrong[0]]!r}, not {wanted[wrong[0]]!r}" if wrong else f"{tokens} tokens"
            raise InputError(f"prompt_cache={self._path}: the file is damaged ({named}): {_REDO}")

    def _check_sum(self, file: SafetensorsFile) -> None:
        digest = hashlib.sha256()
        for key in tuple(file.keys()):
            if key != _SUM:
                digest.update(_bytes(file.read(key)))
        if digest.digest() != file.read(_SUM).tobytes():
            raise InputError(f"prompt_cache={self._path}: the file is damaged (its sha256 is another): {_REDO}")

    def _specs(self, tokens: int) -> dict[str, TensorSpec]:
        """Returns the specs of the caches and states of a row in a file."""
        return {name: _cut(spec, None if axis is None else tokens) for name, (spec, axis) in self._row.items()}

    def _identity(self) -> str:
        """Returns the hash of everything that caches depend on: compiled module, weights, arguments."""
        hashes = self._bundle.config.sha256
        names = [point.name for point in self._bundle.config.entry_points]
        prefill = self._bundle.entry_point("prefill" if "prefill" in names else "prefill_row")
        arguments = [[argument.name, argument.spec.dtype.name, argument.spec.shape] for argument in prefill.arguments]
        decides = [hashes.get(self._module), hashes.get(ARCHIVE), arguments]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def _cut(spec: TensorSpec, tokens: int | None) -> TensorSpec:
    rest = spec.shape[1:] if tokens is None else (spec.shape[1], tokens, *spec.shape[3:])
    return TensorSpec((1, *rest), spec.dtype)


def _continues(kept: RowPrefix, prefix: RowPrefix) -> bool:
    """Returns whether a prefix that is kept goes on from another one."""
    begin = kept.token_ids[: len(prefix.token_ids)]
    return kept.regime == prefix.regime and np.array_equal(begin, prefix.token_ids)


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
