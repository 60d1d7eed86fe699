"""Prediction of an export: its nodes, files and memory, by a lowering that is not published."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

import numpy as np

from compile_hlo import LoweredModule, lower_module
from compile_hlo.directions import check_declared
from compile_hlo.emit import ExternalParameters, Form, InlineParameters
from lang_core import TensorSpec, bool_, has_extra
from run_iree.archive import ArchiveLayout
from tapeline.bundle import (
    ARCHIVE,
    ARTIFACT,
    DEBUG_MODULE,
    MARK,
    MODULE,
    REPORT,
    SCOPE,
    debug_config,
    debug_executable_name,
    executable_name,
    memory_now,
)
from tapeline.exporting._debug import lower_debug
from tapeline.exporting._describe import description
from tapeline.exporting._load import Export
from tapeline.exporting._memory import (
    VerifiedModel,
    chunk_bytes,
    compiler_memory,
    interpreter_memory,
    lowering_memory,
    stablehlo_memory,
    verification_memory,
    weights_memory,
)
from tapeline.exporting._source import ModelSource
from tapeline.exporting._weights import layout_of
from tapeline.text import tokenizer_files
from transformer_core import CONFIG_FILE, SENTENCE_FILES

_BUNDLED: Final = (
    CONFIG_FILE,
    "generation_config.json",
    *SENTENCE_FILES,
    "preprocessor_config.json",
    "processor_config.json",
)

# Bytes of what libraries write: at least so many, and so many per emitted node (docs/benchmarks.md).
_ARTIFACT: Final = 7_500, 3
_EXECUTABLE: Final = {
    "llvm-cpu": (140_000, 55),
    "vmvx": (80_000, 50),
    "vulkan-spirv": (320_000, 55),
    "cuda": (420_000, 55),
}
_SHORT_TEXT: Final = 2**18  # bytes of a module's text that stay in memory
_PER_TARGET: Final = 2_500  # in the description: flags and the CPU's features


def bundled_files() -> tuple[str, ...]:
    """Returns the names of files that a bundle takes over from the model's directory, if they are there."""
    return (*_BUNDLED, *tokenizer_files())


class KeptTexts:
    """Texts of modules, kept from the prediction for the export; closed at the end of a ``with`` block.

    A short one stays in memory, a long one goes into a file without a name.
    """

    def __init__(self) -> None:
        self._files: dict[str, IO[str]] = {}

    def open(self, name: str) -> IO[str]:
        """Returns a new file for the text of a module."""
        # Closed at the end of the block.
        self._files[name] = tempfile.SpooledTemporaryFile(_SHORT_TEXT, "w+", encoding="utf-8", newline="")  # noqa: SIM115
        return self._files[name]

    def move(self, name: str, path: Path) -> bool:
        """Writes a kept text to a path; returns whether it is there."""
        file = self._files.pop(name, None)
        if file is None:
            return False
        with file, path.open("w", encoding="utf-8", newline="") as target:
            file.seek(0)
            shutil.copyfileobj(file, target)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction of an export.

    Attributes:
        lowered: the module's functions and parameters.
        text_sha256: of the module's text, without the data of inline weights.
        debug_sha256: the same of the debug module; empty if none is asked for.
        archive_sha256: of the archive's form: names, specs, places.
        chunk_bytes: rows of weights that are read at a time.
        files: bytes per file; those of ``estimated`` are about so many.
        estimated: files with sizes that are estimated from other files.
        anonymous_bytes: per phase, the peak of this process's anonymous memory above that after imports.
        child_bytes: per phase, the resident peak of the process that it starts.
        caches: bytes of caches and states, and their bytes without rings.
    """

    lowered: LoweredModule
    text_sha256: str
    debug_sha256: str
    archive_sha256: str
    chunk_bytes: int
    files: dict[str, int]
    estimated: tuple[str, ...]
    anonymous_bytes: dict[str, int]
    child_bytes: dict[str, int]
    caches: dict[str, int]

    @property
    def disk_bytes(self) -> int:
        """The size of the bundle."""
        return sum(self.files.values())

    def as_json(self) -> dict[str, Any]:
        """Returns the prediction as JSON values, for the report."""
        return {
            "nodes": node_counts(self.lowered),
            "caches": self.caches,
            "files": self.files,
            "estimated": list(self.estimated),
            "disk_bytes": self.disk_bytes,
            "peak_anonymous_bytes": self.anonymous_bytes,
            "peak_child_rss_bytes": self.child_bytes,
        }


def node_counts(lowered: LoweredModule) -> dict[str, int]:
    """Nodes of all functions together."""
    return {
        "recorded": sum(function.nodes_recorded for function in lowered.functions),
        "pruned": sum(function.nodes_pruned for function in lowered.functions),
        "emitted": sum(function.nodes_emitted for function in lowered.functions),
    }


def predict(export: Export, source: ModelSource, texts: KeptTexts | None = None) -> Prediction:
    """Predicts an export: records the model without reading weights or writing; stores the tags in the export.

    Args:
        export: options of the export.
        source: the model's files.
        texts: keeps the modules' texts, such that an export need not lower the model again; not those with weights
            inline.

    Raises:
        InputError: a glob of ``--dump_tags`` does not match a tag.
        GraphError: an entry point writes an argument that it does not declare as written.
    """
    if export.options.weights == "inline":
        texts = None
    lowered, module_bytes, sha256 = _lower(export, keep=None if texts is None else texts.open(MODULE))
    for function in lowered.functions:
        check_declared(function.name, function.directions)
    options, counts = export.options, node_counts(lowered)
    layout = layout_of(lowered)
    files = {MODULE: module_bytes}
    debug_nodes, debug_sha256 = 0, ""
    if options.dump_tags:
        keep = None if texts is None else texts.open(DEBUG_MODULE)
        debug, files[DEBUG_MODULE], debug_sha256 = _lower(export, tags=options.dump_tags, keep=keep)
        debug_nodes = node_counts(debug)["emitted"]
        tags = {function.name: function.tags for function in debug.functions}
        sites = {function.name: traced.sites for function, traced in zip(debug.functions, debug.traced, strict=False)}
        export.debug = debug_config(options.dump_tags, options.compiled, tags, sites)
    largest = max(counts["emitted"], debug_nodes), max(module_bytes, files.get(DEBUG_MODULE, 0))
    if options.weights == "external":
        files[ARCHIVE] = layout.total_bytes
    for name in bundled_files():
        if (source.directory / name).is_file():
            files[name] = (source.directory / name).stat().st_size
    # Header, tokenizer and model, which stay for all phases: they are here already, and so measured.
    held = max(0, memory_now().anonymous - export.meter.base.anonymous)
    written = weights_memory(options, lowered, export.weights)
    verified = VerifiedModel(
        export.sizes.batch * export.sizes.sequence,
        export.sizes.max_sequence or export.sizes.sequence,
        export.model.config.facts().get("heads", 0),
        export.vocabulary,
    )
    guesses = _guessed_files(export, lowered, debug_nodes, [*files])
    return Prediction(
        lowered,
        sha256,
        debug_sha256,
        _layout_sha256(layout),
        chunk_bytes(options.max_memory),
        files | guesses,
        tuple(guesses),
        {
            "lower": held + lowering_memory(options, counts["recorded"]),
            "parameters": held + written,
            "compile": held + written,
            "verify": held + verification_memory(options, verified, export.entry_points, lowered, export.weights),
        },
        {
            "compile": max((compiler_memory(target, *largest) for target in options.compiled), default=0),
            "verify": interpreter_memory(largest[1], export.entry_points, lowered)
            if options.verify == "interpreter"
            else stablehlo_memory(largest[1]),
        },
        export.caches,
    )


def _lower(export: Export, tags: Sequence[str] = (), keep: IO[str] | None = None) -> tuple[LoweredModule, int, str]:
    """Lowers the module, or with tags the debug module.

    Args:
        export: options of the export.
        tags: globs of tagged tensors.
        keep: takes the text.

    Returns:
        The module, the bytes that its text would have, and the hash of the text without weights.
    """
    digest, data = hashlib.sha256(), 0
    text_bytes = 0

    def write(piece: str) -> None:
        nonlocal text_bytes
        if keep is not None:
            keep.write(piece)
        encoded = piece.encode()
        digest.update(encoded)
        text_bytes += len(encoded)

    def no_data(path: str, spec: TensorSpec) -> Iterator[np.ndarray]:
        nonlocal data
        if spec.dtype is bool_ or not spec.size:  # these are spelled out
            yield np.zeros(spec.shape, spec.dtype.numpy)
        else:
            data += 2 * spec.nbytes  # in hexadecimal

    form: Form = InlineParameters(no_data) if export.options.weights == "inline" else ExternalParameters(SCOPE)
    if tags:
        lowered = lower_debug(export.entry_points, write, form, tags)
    else:
        locations = export.options.locations
        lowered = lower_module(export.entry_points, write, form, streaming=True, locations=locations)
    return lowered, text_bytes + data, digest.hexdigest()


def _layout_sha256(layout: ArchiveLayout) -> str:
    """Returns the hash of the bytes before the data, and of the list of keys."""
    digest = hashlib.sha256()
    for piece in layout.head_pieces():
        digest.update(piece)
    before = "["
    for storage in layout.each_storage():
        digest.update(f"{before}{storage.key!r}".encode())
        before = ", "
    digest.update(b"]" if before == ", " else b"[]")
    return digest.hexdigest()


def _guessed_files(export: Export, lowered: LoweredModule, debug_nodes: int, known: Sequence[str]) -> dict[str, int]:
    """Files with sizes that depend on libraries and compilers."""
    options, nodes = export.options, node_counts(lowered)["emitted"]
    modules: dict[str, int] = {}
    for target in options.compiled:
        least, per_node = _EXECUTABLE[target]
        modules[executable_name(target)] = least + per_node * nodes
        if debug_nodes:
            modules[debug_executable_name(target)] = least + per_node * debug_nodes
    artifact = {ARTIFACT: _ARTIFACT[0] + _ARTIFACT[1] * nodes} if has_extra("jax") else {}
    names = [*known, *artifact, *modules]
    described = sum(map(len, description(export, lowered, dict.fromkeys(names, "0" * 64)).pieces()))
    report = 3000 + sum(len(path) + 10 for path in lowered.parameters()) + 220 * len(names)
    return {**artifact, **modules, MARK: described + _PER_TARGET * len(modules), REPORT: report}
