"""File that keeps caches after a prompt for the next run; docs/prompt-cache.md describes its format."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from lang_core import CheckpointError, InputError, TensorSpec
from tapeline.bundle import ARCHIVE, Bundle
from tapeline.running._model import ENCODE, BundleModel
from tapeline.running._prompt_memory import BundlePromptMemory, is_whole
from transformer_core.checkpoints import SafetensorsFile, write_safetensors

FORMAT: Final = "tapeline.prompt_cache"
SCHEMA: Final = "1"

_TOKENS: Final = "token_ids"
_SUM: Final = "sha256"  # of the other tensors, in the order of the file; it is the last one
_REGIME: Final = "rope_regime"  # as of the memory; 0 if absent
_REDO: Final = "delete it, or name another file"
_ADVICE: Final = ": download or convert the file again"  # what is said of weights


class PromptCacheFile:
    """Prompt cache of one model: made by this bundle's prefill, on this device's target."""

    def __init__(self, path: Path, bundle: Bundle, module: str, model: BundleModel, memory: BundlePromptMemory) -> None:
        """Reads nothing yet.

        Args:
            path: path of the file.
            bundle: the bundle.
            module: name of the bundle's file that runs.
            model: what has the caches.
            memory: what they hold.

        Raises:
            InputError: what caches hold depends on more than a prompt: the bundle has an encoder.
        """
        if ENCODE in [point.name for point in bundle.config.entry_points]:
            raise InputError(
                f"prompt_cache={path}: what the caches of {bundle.path} hold depends on what its encoder was given, "
                "not on the prompt alone: leave it out"
            )
        self._path: Final = path
        self._model: Final = model
        self._memory: Final = memory
        self._identity: Final = _identity(bundle, module)

    def load(self) -> None:
        """Loads the file into the memory; does nothing where there is no file.

        Raises:
            InputError: the file is no prompt cache, or damaged, of another schema, or another bundle's.
        """
        if not self._path.exists():
            return
        try:
            with SafetensorsFile(self._path) as file:
                self._check(file.metadata)
                self._check_specs(file)
                self._check_sum(file)
                token_ids = file.read(_TOKENS).tolist()
                arrays = {name: self._array(file, name) for name in self._model.cache_specs}
                self._memory.assume(token_ids, arrays, int(file.metadata.get(_REGIME, "0")))
        except CheckpointError as error:
            reason = str(error).removesuffix(_ADVICE)
            raise InputError(f"`prompt_cache`: {reason}: the file is damaged, or no prompt cache: {_REDO}") from None

    def save(self) -> bool:
        """Writes the caches that the memory keeps and returns True, or False where the last prompt was kept already.

        Raises:
            InputError: the file cannot be written.
        """
        token_ids = self._memory.token_ids
        if self._memory.reused == len(token_ids):
            return False
        specs = {_TOKENS: TensorSpec((len(token_ids),), "i32"), **self._specs(len(token_ids))}
        specs[_SUM] = TensorSpec((hashlib.sha256().digest_size,), "u8")
        digest = hashlib.sha256()

        def chunks(key: str, spec: TensorSpec) -> Iterator[np.ndarray]:
            if key == _SUM:
                yield np.frombuffer(digest.digest(), np.uint8)
                return
            array = self._kept(key, token_ids)
            digest.update(_bytes(array))
            yield array

        metadata = {"format": FORMAT, "schema": SCHEMA, "bundle": self._identity}
        if self._memory.rope_regime:
            metadata[_REGIME] = str(self._memory.rope_regime)
        write_safetensors(self._path, specs, chunks, metadata=metadata)
        return True

    def _specs(self, tokens: int) -> dict[str, TensorSpec]:
        """Returns the specs of the caches and states in a file."""
        capacity = self._model.capacity
        return {
            name: _cut(spec, tokens) if is_whole(name, spec, capacity) else spec
            for name, spec in self._model.cache_specs.items()
        }

    def _kept(self, key: str, token_ids: Sequence[int]) -> np.ndarray:
        if key == _TOKENS:
            return np.array(token_ids, np.int32)
        if key in self._memory.copies:
            return self._memory.copies[key]
        return np.ascontiguousarray(self._model.read_cache(key)[:, :, : len(token_ids)])

    def _array(self, file: SafetensorsFile, name: str) -> np.ndarray:
        """Returns a cache in the model's shape, with zeros behind the part that is kept."""
        kept, spec = file.read(name), self._model.cache_specs[name]
        if kept.shape == spec.shape:
            return kept
        array = np.zeros(spec.shape, spec.dtype.numpy)
        array[:, :, : kept.shape[2]] = kept
        return array

    def _check(self, metadata: dict[str, str]) -> None:
        where = f"prompt_cache={self._path}"
        if metadata.get("format") != FORMAT:
            raise InputError(f"{where}: a safetensors file, but no prompt cache, and it is not written over: {_REDO}")
        if metadata.get("schema") != SCHEMA:
            raise InputError(
                f"{where}: schema {metadata.get('schema')!r}, this version reads schema {SCHEMA!r}: {_REDO}"
            )
        if metadata.get("bundle") != self._identity:
            raise InputError(
                f"{where}: made with another bundle, or before this one was exported anew, or on a device of another "
                f"target; its caches are of no use here: {_REDO}"
            )

    def _check_specs(self, file: SafetensorsFile) -> None:
        tokens = file.spec(_TOKENS).size
        wanted = self._specs(tokens)
        specs = {name: file.spec(name) for name in wanted}
        wrong = [name for name, spec in wanted.items() if specs[name] != spec]
        if wrong or tokens % self._model.chunk or tokens > self._model.capacity:
            named = f"{wrong[0]!r} is {specs[wrong[0]]!r}, not {wanted[wrong[0]]!r}" if wrong else f"{tokens} tokens"
            raise InputError(f"prompt_cache={self._path}: the file is damaged ({named}): {_REDO}")

    def _check_sum(self, file: SafetensorsFile) -> None:
        digest = hashlib.sha256()
        for key in tuple(file.keys()):
            if key != _SUM:
                digest.update(_bytes(file.read(key)))
        if digest.digest() != file.read(_SUM).tobytes():
            raise InputError(f"prompt_cache={self._path}: the file is damaged (its sha256 is another): {_REDO}")


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _cut(spec: TensorSpec, tokens: int) -> TensorSpec:
    return TensorSpec((*spec.shape[:2], tokens, *spec.shape[3:]), spec.dtype)


def _identity(bundle: Bundle, module: str) -> str:
    """Returns the hash of everything that caches depend on: compiled module, weights, arguments."""
    hashes = bundle.config.sha256
    arguments = [
        [argument.name, argument.spec.dtype.name, argument.spec.shape]
        for argument in bundle.entry_point("prefill").arguments
    ]
    decides = [hashes.get(module), hashes.get(ARCHIVE), arguments]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()
