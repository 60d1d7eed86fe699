"""Conversion of a model: to a directory that transformers loads, or to a GGUF file."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import (
    DType,
    InputError,
    TensorSpec,
    WeightSource,
    as_dtype,
    checked_choices,
    has_extra,
    near_names,
    quantizable,
    read_json,
)
from tapeline.analysis.drawing import write_losses
from tapeline.cli import Progress, ProgressEvent, no_progress
from tapeline.converting._collect import collect_imatrix, tensors_of_plan
from tapeline.converting._gguf import write_gguf
from tapeline.converting._imatrix import read_imatrix
from tapeline.exporting import ModelSource, bundled_files, open_source, planned_source, with_adapters
from tapeline.quantizing import AUTO, Budget, check_budget
from transformer_core import CONFIG_FILE
from transformer_core.checkpoints import SafetensorsCheckpoint, write_sharded_safetensors
from transformer_core.models import Model, StoredLayout, load_model, stored_specs, weights_of

CONVERTED_DTYPES: Final = ("f32", "bf16", "f16")
"""Dtypes that weights are written in."""
CONVERTED_FORMATS: Final = ("safetensors", "gguf")
"""Formats that models are written in."""

_GGUF: Final = "gguf"

_TORCH: Final = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_OF_STORAGE: Final = (
    "quantization_config",
    "torch_dtype",
    "dtype",
)  # fields that say how the weights were stored before
_UNKNOWN: Final = ("Ernie4_5_MoeForCausalLM",)  # its checkpoints have a bias in one of two shapes
_SHARD: Final = 5_000_000_000  # bytes; transformers writes files of as many
_ROWS: Final = 64 << 20  # bytes of a tensor that are converted at once


@checked_choices
@dataclass(frozen=True, slots=True)
class Converted:
    """Converted model.

    Attributes:
        path: the directory, or the GGUF file.
        dtype: dtype of the weights; of a GGUF file the encoding or dtype of most of them.
        tensors: number of tensors.
        nbytes: bytes of the weights.
    """

    path: Path
    dtype: str
    tensors: int
    nbytes: int


@checked_choices
def convert(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    to: str = "safetensors",
    dtype: str | None = None,
    encoding: str | None = None,
    imatrix: str | os.PathLike[str] | None = None,
    calibration: str | os.PathLike[str] | None = None,
    calibration_tokens: int = 4096,
    target_bpw: float | None = None,
    max_loss: float | None = None,
    report: str | os.PathLike[str] | None = None,
    tokenizer: bool = True,
    adapter: Sequence[str] = (),
    shard_bytes: int = _SHARD,
    progress: Progress = no_progress,
    base: str | os.PathLike[str] = "",
) -> Converted:
    """Writes a model as transformers reads it, or as llama.cpp does.

    That is safetensors in the names of its family, config.json, and its tokenizer; or one GGUF file. Packed weights
    are unpacked, if a GGUF file does not keep them, and adapters are merged as they are read. Few tensors are in memory
    at a time.

    Args:
        model: Hugging Face directory, ``.gguf`` file, name of the hub, or ``demo``.
        output: directory, which must not exist or be empty, or GGUF file, which must not exist; it appears complete or
            not at all.
        to: ``safetensors`` or ``gguf``.
        dtype: ``f32``, ``bf16`` or ``f16``; if None that of the weights, and ``f16`` of packed ones.
        encoding: encoding of a GGUF file's matrices, one of ``quantizable()``; if None they stay as a GGUF file has
            them, and are of the dtype else. ``auto`` gives each matrix its own, by measured loss.
        imatrix: file with the importance of the matrices' inputs, as llama.cpp writes it; for ``encoding``. It is
            read, or written if ``calibration`` is given.
        calibration: file of text over which the importance is measured, and the loss for ``encoding="auto"``, which
            has a text of its own.
        calibration_tokens: the most tokens that are taken of the text.
        target_bpw: most bits per weight of the matrices for ``encoding="auto"``; 4.5 if no limit is given.
        max_loss: most loss for ``encoding="auto"``: KL divergence of the logits, in nats per token.
        report: new file for the losses that ``encoding="auto"`` measured, as JSON; a picture is beside it.
        tokenizer: whether a GGUF file has the tokenizer and the chat template.
        adapter: LoRA adapters that are merged, as for ``export``.
        shard_bytes: largest size of a file; a larger tensor has a file of its own.
        progress: receives steps and warnings.
        base: directory that relative paths start from.

    Raises:
        InputError: the model cannot be read, ``output`` exists, or a weight is beyond the range of the dtype.
    """
    if dtype is not None and dtype not in CONVERTED_DTYPES:
        raise InputError(f"dtype={dtype}: expected one of {', '.join(CONVERTED_DTYPES)}")
    _check_choices(to, encoding, imatrix, calibration, tokenizer)
    budget = _checked_budget(encoding, target_bpw, max_loss, imatrix, report)
    name, target = os.fspath(model), Path(base, output)
    if to == _GGUF:
        if target.exists():
            raise InputError(f"output={output}: exists, and only a new file is written: choose another")
        known = None if imatrix is None or calibration is not None else read_imatrix(Path(base, imatrix))
        if imatrix is not None and calibration is not None and Path(base, imatrix).exists():
            raise InputError(f"imatrix={imatrix}: exists, and with calibration a new file is written: choose another")
        with (
            open_source(name, Path(base, name), True, progress) as opened,
            with_adapters(opened, adapter, Path(base), progress) as source,
        ):
            if budget is not None:
                text = None if calibration is None else Path(base, calibration)
                return _by_loss(
                    source, target, budget, text, calibration_tokens, base, report, tokenizer, dtype, progress
                )
            if calibration is not None:
                known = collect_imatrix(source, Path(base, calibration), calibration_tokens, progress)
                if imatrix is not None:
                    known.write(Path(base, imatrix))
            importance = {} if known is None else known.importance()
            settings = {"dtype": dtype, "encodings": encoding, "importance": importance, "tokenizer": tokenizer}
            return Converted(target, *write_gguf(source, target, progress=progress, **settings))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"output={output}: exists, and only a new or empty directory is written: choose another")
    with (
        open_source(name, Path(base, name), True, progress) as opened,
        with_adapters(opened, adapter, Path(base), progress) as source,
    ):
        tensors = _tensors_of(source)
        chosen = as_dtype(dtype or _own_dtype(source.weights))
        specs = {key: TensorSpec(spec.shape, chosen) for key, spec in tensors.specs.items()}
        nbytes = sum(spec.nbytes for spec in specs.values())
        shards = min(len(specs), max(1, -(-nbytes // shard_bytes)))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", suffix=".partial", dir=target.parent) as folder:
            staging = Path(folder)
            writing = _Writing(tensors, chosen, progress)
            write_sharded_safetensors(staging, specs, writing.chunks, shards)
            write_description(staging, source.directory, chosen.name, bundled_files())
            _check(staging, name)
            staging.chmod(0o755)
            if target.is_dir():
                target.rmdir()
            staging.rename(target)
            staging.mkdir()  # for the context manager, which removes it
    return Converted(target, chosen.name, len(specs), nbytes)


def _by_loss(
    source: ModelSource,
    target: Path,
    budget: Budget,
    calibration: Path | None,
    tokens: int,
    base: str | os.PathLike[str],
    report: str | os.PathLike[str] | None,
    tokenizer: bool,
    dtype: str | None,
    progress: Progress,
) -> Converted:
    """Writes a GGUF file with encodings that are chosen by measured loss."""
    with tempfile.TemporaryDirectory(prefix="tapeline-packed-") as folder:
        plan = planned_source(source, budget, calibration, tokens, None, Path(folder), progress)
        encodings, importance = tensors_of_plan(source, plan)
    written = write_gguf(
        source,
        target,
        dtype=dtype,
        encodings=encodings,
        importance=importance,
        tokenizer=tokenizer,
        progress=progress,
    )
    if report is not None:
        path = Path(base, report)
        path.write_text(json.dumps({"losses": plan.facts}, indent=2) + "\n", encoding="utf-8")
        if has_extra("plots"):
            write_losses(plan.facts, path.with_suffix(".svg"))
    return Converted(target, *written)


def _checked_budget(
    encoding: str | None,
    target_bpw: float | None,
    max_loss: float | None,
    imatrix: object,
    report: object,
) -> Budget | None:
    """Returns the limit of encodings that are chosen by loss; None if they are not.

    Raises:
        InputError: a setting does not go with another.
    """
    if encoding == AUTO and imatrix is not None:
        raise InputError(f"imatrix={imatrix}: encoding={AUTO} measures importance itself: leave it out")
    if encoding != AUTO and report is not None:
        raise InputError(f"report={report}: has the losses that encoding={AUTO} measures: leave it out")
    return check_budget(encoding, target_bpw, max_loss, "encoding")


def _check_choices(to: str, encoding: str | None, imatrix: object, calibration: object, tokenizer: bool) -> None:
    """Checks the settings of GGUF files.

    Raises:
        InputError: one is unknown, or does not go with another.
    """
    if to not in CONVERTED_FORMATS:
        raise InputError(f"to={to}: expected one of {', '.join(CONVERTED_FORMATS)}{near_names(to, CONVERTED_FORMATS)}")
    known = (AUTO, *quantizable())
    if encoding is not None and encoding not in known:
        raise InputError(f"encoding={encoding}: expected one of {', '.join(known)}{near_names(encoding, known)}")
    stated = {"encoding": encoding, "imatrix": imatrix, "calibration": calibration}
    of_gguf = [name for name, value in stated.items() if value is not None] + ([] if tokenizer else ["tokenizer"])
    if to != _GGUF and of_gguf:
        setting = of_gguf[0]
        raise InputError(f"{setting}: is of GGUF files, and to={to} writes none: give to=gguf, or leave it out")
    if len(of_gguf) > 0 and encoding is None and of_gguf[0] != "tokenizer":
        raise InputError(f"{of_gguf[0]}: weighs what is packed, and nothing is: give encoding=q4_k or another one")


class _Tensors(NamedTuple):
    """Tensors of a checkpoint.

    Attributes:
        specs: their specs by key; dtypes are those of the model.
        read: yields some of them in its own order.
        others: reads each of the others by key.
    """

    specs: Mapping[str, TensorSpec]
    read: Iterator[tuple[str, np.ndarray]]
    others: Mapping[str, Callable[[], np.ndarray]]


def _tensors_of(source: ModelSource) -> _Tensors:
    """Returns the tensors that a checkpoint of Hugging Face's form has of a model.

    Those of a directory stay as they are, also if the model does not read them, such as a vision tower. Those that
    adapters change, and those of a GGUF file, are made from the model's parameters.
    """
    weights = source.weights
    assert weights is not None
    is_file = source.path.is_file()
    stored = {} if is_file else {key: weights.spec(key) for key in weights.keys()}  # noqa: SIM118 - it is no mapping
    if not is_file and not source.adapters:
        return _Tensors(stored, iter(()), {key: partial(weights.read, key) for key in stored})
    model = load_model(source.directory, adapters=source.adapters)
    if is_file and (_has_head(model) or model.config.architecture in _UNKNOWN):
        raise InputError(
            f"model={source.name}: tensors of {model.config.architecture} have other names or shapes in transformers "
            f"than a GGUF file tells: convert its directory of safetensors"
        )
    layout = StoredLayout(model, None if is_file else weights)
    parameters = _Parameters(
        weights_of(model, weights, source.adapters), [path for path, _ in model.named_parameters()]
    )
    others = {key: partial(weights.read, key) for key in stored if key not in layout.specs}
    return _Tensors({**layout.specs, **{key: stored[key] for key in others}}, layout.tensors(parameters), others)


def _has_head(model: Model[Any]) -> bool:
    """Returns True of an encoder with a head, below which transformers has a prefix that GGUF files lack."""
    return not hasattr(model.config, "rope") and "For" in model.config.architecture


def _own_dtype(weights: WeightSource | None) -> str:
    """Returns the dtype of the stored matrices; f16 if some are packed, or of a dtype that is not written."""
    assert weights is not None
    matrices = [key for key in weights.keys() if len(weights.spec(key).shape) > 1]  # noqa: SIM118 - it is no mapping
    if any(weights.encoding(key) is not None for key in matrices):
        return "f16"
    dtypes = {weights.spec(key).dtype.name for key in matrices}
    return next((name for name in CONVERTED_DTYPES if name in dtypes), "f16" if matrices else "f32")


class _Parameters(Mapping[str, np.ndarray]):
    """Parameters of a model by path, each read when it is asked for."""

    def __init__(self, weights: WeightSource, paths: Sequence[str]) -> None:
        self._weights: Final = weights
        self._paths: Final = dict.fromkeys(paths)

    def __getitem__(self, path: str) -> np.ndarray:
        return self._weights.read(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class _Writing:
    """Data of tensors in the order in which they are asked for; those that come before wait."""

    def __init__(self, tensors: _Tensors, dtype: DType, progress: Progress) -> None:
        self._source: Final = tensors
        self._dtype: Final = dtype
        self._progress: Final = progress
        self._waiting: Final[dict[str, np.ndarray]] = {}
        self._total: Final = sum(spec.size for spec in tensors.specs.values()) * dtype.itemsize
        self._done = 0

    def chunks(self, key: str, spec: TensorSpec) -> Iterator[np.ndarray]:
        """Yields a tensor of a spec's shape in the dtype, some rows at a time."""
        read = self._source.others.get(key)
        tensor = (self._made(key) if read is None else read()).reshape(spec.shape)
        if not tensor.ndim:
            yield self._as_dtype(tensor, key)
            return
        rows = max(1, _ROWS // max(1, tensor[:1].size * 8))
        for start in range(0, len(tensor), rows):
            yield self._as_dtype(tensor[start : start + rows], key)

    def _made(self, key: str) -> np.ndarray:
        while key not in self._waiting:
            stored, tensor = next(self._source.read)
            self._waiting[stored] = tensor
        return self._waiting.pop(key)

    def _as_dtype(self, values: np.ndarray, key: str) -> np.ndarray:
        with np.errstate(over="ignore"):
            written = values.astype(self._dtype.numpy)
        self._done += written.nbytes
        self._progress(ProgressEvent("weights", self._done, self._total))
        if not np.array_equal(np.isinf(written.astype(np.float32)), np.isinf(values.astype(np.float32))):
            raise InputError(f"{key} has a value beyond the range of {self._dtype.name}: give dtype=bf16 or dtype=f32")
        return written


def _check(directory: Path, name: str) -> None:
    """Checks that the directory can be read again: each tensor is there in the shape that the family has it in."""
    with SafetensorsCheckpoint(directory) as checkpoint:
        for key, spec in stored_specs(load_model(directory), checkpoint).items():
            if not checkpoint.has(key) or checkpoint.spec(key).shape != spec.shape:
                shape = list(checkpoint.spec(key).shape) if checkpoint.has(key) else "nothing"
                raise InputError(
                    f"model={name}: {key} would be {shape} in safetensors, and {list(spec.shape)} is read: this "
                    f"family is not converted from a GGUF file: convert a directory of safetensors"
                )


def write_description(directory: Path, source: Path, dtype: str, names: Iterable[str]) -> None:
    """Writes ``config.json`` beside weights of a dtype, without how they were stored before, and copies other files.

    Args:
        directory: directory of the weights.
        source: directory of the model's files.
        dtype: dtype of the weights.
        names: names of files that are copied if they are there.
    """
    fields: dict[str, Any] = read_json(source / CONFIG_FILE, "give the model's directory", nonfinite=True)
    kept = {name: value for name, value in fields.items() if name not in _OF_STORAGE}
    text = json.dumps({**kept, "torch_dtype": _TORCH[dtype]}, indent=2)
    (directory / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
    for name in names:
        if name != CONFIG_FILE and (source / name).is_file():
            (directory / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, directory / name)
