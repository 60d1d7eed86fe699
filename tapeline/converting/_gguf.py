"""Conversion of a model to a GGUF file, which llama.cpp and programs on it load."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from gguf import GGMLQuantizationType, LlamaFileType

from lang_core import ENCODINGS, InputError, WeightSource, read_json
from tapeline.cli import Progress, ProgressEvent
from tapeline.exporting import ModelSource
from tapeline.text import gguf_tokenizer_fields
from transformer_core import CONFIG_FILE
from transformer_core.checkpoints import audit
from transformer_core.checkpoints.gguf import PLAIN, GgufSpec, GgufValue, GgufWriter, typed
from transformer_core.models import DecoderLM, load_model, stored_specs, tied_keys, unused_keys, weights_of
from transformer_core.models.gguf import GgufModel, plan_gguf, sampling_metadata

_ROWS: Final = 32 << 20  # bytes of f32 that are packed at once
_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_KIND: Final = GGMLQuantizationType
_PLAIN: Final = {"f32": _KIND.F32, "f16": _KIND.F16, "bf16": _KIND.BF16}
_FILE_TYPES: Final = {
    "f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q4_0": "MOSTLY_Q4_0", "q4_1": "MOSTLY_Q4_1",
    "q5_0": "MOSTLY_Q5_0", "q5_1": "MOSTLY_Q5_1", "q8_0": "MOSTLY_Q8_0", "q2_k": "MOSTLY_Q2_K",
    "q3_k": "MOSTLY_Q3_K_S", "q4_k": "MOSTLY_Q4_K_S", "q5_k": "MOSTLY_Q5_K_S", "q6_k": "MOSTLY_Q6_K",
    "iq4_nl": "MOSTLY_IQ4_NL", "iq4_xs": "MOSTLY_IQ4_XS", "mxfp4": "MOSTLY_MXFP4_MOE",
}  # fmt: skip
# Names that llama.cpp has in f32 only, and those that it does not pack (llama-quant.cpp).
_F32: Final = re.compile(
    r".*(_norm\.weight|ffn_gate_inp(_shexp)?\.weight|ssm_conv1d\.weight|shortconv\.conv\.weight"
    r"|altup_(correct|predict)_coef\.weight)|(position_embd|token_types)\.weight"
)
_UNPACKED: Final = re.compile(
    r".*(ffn_gate_inp|altup|laurel|per_layer_model_proj|ssm_conv1d|attn_rel_b|shortconv\.conv).*"
)
# Encodings in blocks of 32 for rows that are not whole blocks of 256, as in llama-quantize.
_SMALLER: Final = {
    "q2_k": "iq4_nl", "q3_k": "iq4_nl", "iq4_xs": "iq4_nl", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
}  # fmt: skip
_HEADS: Final = "q6_k"
_LEAST_HEAD_BITS: Final = 6

Importance = Mapping[str, np.ndarray]
"""Mean squares of the inputs of each matrix, by its key in the file."""


class Written(NamedTuple):
    """File that was written.

    Attributes:
        dtype: encoding or dtype of most matrices.
        tensors: number of tensors.
        nbytes: bytes of the tensors.
    """

    dtype: str
    tensors: int
    nbytes: int


class _Contents(NamedTuple):
    """Contents of a file.

    Attributes:
        metadata: fields.
        shapes: shapes of the tensors.
        kinds: types that tensors have already; empty for those that are made from parameters.
        read: yields each tensor, whole, in any order.
        packed: reads the bytes of a tensor whose type stays.
    """

    metadata: dict[str, GgufValue]
    shapes: dict[str, tuple[int, ...]]
    kinds: dict[str, GGMLQuantizationType]
    read: Callable[[], Iterator[tuple[str, Callable[[int, int], np.ndarray]]]]
    packed: Callable[[str], np.ndarray]


def write_gguf(
    source: ModelSource,
    target: Path,
    *,
    dtype: str | None,
    encodings: Mapping[str, str] | str | None,
    importance: Importance,
    tokenizer: bool,
    progress: Progress,
) -> Written:
    """Writes a model as a GGUF file, which appears complete or not at all.

    Args:
        source: the model with its weights.
        target: path of the new file.
        dtype: dtype of matrices that are not packed; that of the checkpoint if None.
        encodings: encoding of the matrices: one for all, or by key; they stay as they are if None.
        importance: importance of the inputs of matrices.
        tokenizer: whether the file has the tokenizer.
        progress: receives steps.

    Raises:
        InputError: GGUF cannot hold the model, or a weight is beyond the range of its type.
    """
    stays = source.path.is_file() and not source.adapters
    contents = _of_file(source) if stays else _of_parameters(source, tokenizer)
    chosen = dtype or ("f16" if stays else _own(source.weights))
    tensors = {
        key: GgufSpec(shape, _type(key, shape, contents, dtype, encodings, chosen))
        for key, shape in contents.shapes.items()
    }
    shown = encodings if isinstance(encodings, str) else _commonest(tensors)
    metadata = dict(contents.metadata)
    if encodings is not None or dtype is not None or not stays:
        name = _FILE_TYPES.get(shown)
        if name is not None and hasattr(LlamaFileType, name):
            metadata["general.file_type"] = typed(LlamaFileType[name].value)
        metadata["general.quantization_version"] = typed(2)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    os.close(handle)
    try:
        with GgufWriter(partial, metadata, tensors) as writer:
            _write(writer, tensors, contents, importance, progress)
        _check(partial)
        Path(partial).chmod(0o644)
        os.replace(partial, target)
    finally:
        Path(partial).unlink(missing_ok=True)
    return Written(shown, len(tensors), sum(spec.nbytes for spec in tensors.values()))


def _write(
    writer: GgufWriter,
    tensors: Mapping[str, GgufSpec],
    contents: _Contents,
    importance: Importance,
    progress: Progress,
) -> None:
    total, done = sum(spec.nbytes for spec in tensors.values()), 0
    for key, rows in contents.read():
        spec = tensors[key]
        if contents.kinds.get(key) is spec.type:
            writer.write(key, contents.packed(key))
            done += spec.nbytes
            progress(ProgressEvent("weights", done, total))
            continue
        for start, chunk in _chunks(rows, spec.shape):
            data = _encoded(key, chunk, spec, importance, start)
            writer.write(key, data)
            done += data.nbytes
            progress(ProgressEvent("weights", done, total))


def _chunks(rows: Callable[[int, int], np.ndarray], shape: tuple[int, ...]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields a tensor, some rows of its first axis at a time, each time with the number of the first row."""
    if not shape:
        yield 0, rows(0, 1)
        return
    step = max(1, _ROWS // max(1, 4 * int(np.prod(shape[1:], dtype=np.int64))))
    for start in range(0, shape[0], step):
        yield start, rows(start, min(start + step, shape[0]))


def _encoded(key: str, values: np.ndarray, spec: GgufSpec, importance: Importance, first: int) -> np.ndarray:
    """Returns the bytes of rows in a type."""
    if spec.type in PLAIN:
        with np.errstate(over="ignore"):
            written = values.astype(PLAIN[spec.type].numpy)
        if not np.array_equal(np.isinf(written.astype(np.float32)), np.isinf(values.astype(np.float32))):
            raise InputError(
                f"{key} has a value beyond the range of {PLAIN[spec.type].name}: give dtype=bf16 or dtype=f32"
            )
        return written
    encoding, plain = ENCODINGS[spec.type.name.lower()], values.astype(np.float32)
    largest = float(np.abs(plain).max(initial=0))
    assert encoding.quantizer is not None
    if not largest <= encoding.quantizer.largest:
        raise InputError(
            f"{key} has a value ({largest:g}) beyond the range of {encoding.name} "
            f"({encoding.quantizer.largest:g}): give another encoding, or none and dtype=f32"
        )
    squares = importance.get(key)
    if squares is None:
        return encoding.pack(plain)
    if squares.size % spec.shape[-1]:
        raise InputError(
            f"imatrix: {key} has importance of {squares.size} inputs, and the model's matrix has {spec.shape[-1]}: "
            "make it again from this model"
        )
    squares = squares.reshape(-1, spec.shape[-1])
    if len(squares) == 1:
        return encoding.pack(plain, squares[0])
    if len(spec.shape) != 3 or len(squares) != spec.shape[0]:
        raise InputError(
            f"imatrix: {key} has importance of {len(squares)} matrices of {spec.shape[-1]} inputs, and the model's is "
            f"{list(spec.shape)}: make it again from this model"
        )
    return np.stack([encoding.pack(expert, squares[first + index]) for index, expert in enumerate(plain)])


def _type(
    key: str,
    shape: tuple[int, ...],
    contents: _Contents,
    dtype: str | None,
    encodings: Mapping[str, str] | str | None,
    chosen: str,
) -> GGMLQuantizationType:
    """Returns the type of a tensor."""
    stored = contents.kinds.get(key)
    matrix = len(shape) > 1 and key.endswith(".weight") and not _F32.fullmatch(key)
    if not matrix:
        return _KIND.F32 if stored is None else stored
    named = encodings.get(key) if isinstance(encodings, Mapping) else encodings
    if named is not None and not _UNPACKED.fullmatch(key):
        if isinstance(encodings, str):
            named = _for_heads(named, key, contents)
        fitting = fitting_encoding(named, shape)
        if fitting is not None:
            return _KIND[fitting.upper()]
        return _PLAIN[chosen]
    if stored is not None and dtype is None:
        return stored
    return _PLAIN[chosen]


def fitting_encoding(name: str, shape: tuple[int, ...]) -> str | None:
    """Returns the encoding of a matrix: the named one, or one in smaller blocks; None if its rows are no blocks."""
    for candidate in (name, _SMALLER.get(name)):
        if candidate is not None and ENCODINGS[candidate].takes(shape):
            return candidate
    return None


def _for_heads(name: str, key: str, contents: _Contents) -> str:
    """Returns the encoding of the output projection, which llama.cpp never packs below 6 bits."""
    is_head = key == (_HEAD if _HEAD in contents.shapes else _EMBEDDING)
    return _HEADS if is_head and ENCODINGS[name].bits < _LEAST_HEAD_BITS else name


def _commonest(tensors: Mapping[str, GgufSpec]) -> str:
    sizes: dict[str, int] = {}
    for spec in tensors.values():
        name = spec.type.name.lower()
        sizes[name] = sizes.get(name, 0) + spec.nbytes * (len(spec.shape) > 1)
    return max(sizes, key=sizes.__getitem__)


def _own(weights: WeightSource | None) -> str:
    """Returns the dtype of the stored matrices; f16 if some are packed."""
    assert weights is not None
    matrices = [key for key in weights.keys() if len(weights.spec(key).shape) > 1]  # noqa: SIM118 - no mapping
    if any(weights.encoding(key) is not None for key in matrices):
        return "f16"
    dtypes = {weights.spec(key).dtype.name for key in matrices}
    return next((name for name in _PLAIN if name in dtypes), "f16")


def _of_file(source: ModelSource) -> _Contents:
    """Returns the contents of a GGUF file as they are, also what Tapeline does not read."""
    file = source.weights
    assert isinstance(file, GgufModel)
    metadata = {
        key: GgufValue(value, file.types[key]) for key, value in file.metadata.items() if not key.startswith("split.")
    }
    keys = [key for key in file.keys() if key in file.types_of]  # noqa: SIM118 - no mapping

    def read() -> Iterator[tuple[str, Callable[[int, int], np.ndarray]]]:
        for key in keys:
            yield key, lambda start, stop, key=key: file.read_rows(key, start, stop)

    return _Contents(
        metadata,
        {key: file.spec(key).shape for key in keys},
        {key: file.types_of[key] for key in keys},
        read,
        file.read_packed,
    )


def _of_parameters(source: ModelSource, tokenizer: bool) -> _Contents:
    """Returns the contents of the file of a model's parameters."""
    weights = source.weights
    assert weights is not None
    model = load_model(source.directory, adapters=source.adapters)
    file = source.directory / CONFIG_FILE
    values: dict[str, Any] = read_json(file, "give the model's directory", nonfinite=True)
    plan = plan_gguf(model, values, str(file))
    parameters = weights_of(model, weights, source.adapters)
    name = Path(source.name).name
    architecture = plan.architecture.name
    fields: dict[str, Any] = {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": name,
        **plan.metadata,
        f"{architecture}.vocab_size": model.config.vocabulary,
    }
    for number, paths in plan.layout.numbers.items():
        fields[number] = [float(parameters.read(path).reshape(-1)[0]) for path in paths]
    generation = source.directory / "generation_config.json"
    if generation.is_file():
        fields |= sampling_metadata(read_json(generation, "copy it from the model again", nonfinite=True))
    ends = tuple(model.config.eos_token_ids)
    if tokenizer:
        size = model.config.vocabulary
        fields |= gguf_tokenizer_fields(source.directory, size, ends, architecture, name)
    if "tokenizer.ggml.model" not in fields:
        fields["tokenizer.ggml.model"] = "no_vocab"
    if model.config.bos_token_id is not None:
        fields.setdefault("tokenizer.ggml.bos_token_id", model.config.bos_token_id)

    def read() -> Iterator[tuple[str, Callable[[int, int], np.ndarray]]]:
        arrays: Any = _Parameters(parameters, [path for path, _ in model.named_parameters()])
        for key, array in plan.further.items():
            yield key, lambda start, stop, array=array: array[start:stop]
        for key, array in plan.layout.tensors(arrays):
            yield key, lambda start, stop, array=array: array[start:stop] if array.ndim else array

    shapes = {**{key: array.shape for key, array in plan.further.items()}, **plan.layout.shapes}
    return _Contents(
        {key: typed(value) for key, value in fields.items()}, _ordered(shapes), {}, read, lambda key: np.empty(0)
    )


def _ordered(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Returns the tensors outside of layers first, then those of layer after layer."""

    def place(key: str) -> tuple[int, int]:
        match = re.match(r"blk\.(\d+)\.", key)
        return (0, 0) if match is None else (1, int(match[1]))

    return {key: shapes[key] for key in sorted(shapes, key=place)}


class _Parameters(Mapping[str, np.ndarray]):
    """Parameters of a model by path, each read when it is asked for."""

    def __init__(self, weights: WeightSource, paths: list[str]) -> None:
        self._weights: Final = weights
        self._paths: Final = dict.fromkeys(paths)

    def __getitem__(self, path: str) -> np.ndarray:
        return self._weights.read(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def _check(path: str) -> None:
    """Checks that the file can be read: each tensor that the model needs is there, and no other."""
    with GgufModel(path) as file:
        config: Any = file.config_values
        if config["architectures"][0].endswith(("ForCausalLM", "LMHeadModel")):
            model = DecoderLM(file.config())
            ignorable = unused_keys(model, file)
            audit(file, stored_specs(model, file), tied=tied_keys(model, file), ignorable=ignorable)
