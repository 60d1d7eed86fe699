"""Options of an export and the checks of their values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from compile_hlo.portable import ARTIFACT_VERSION
from lang_core import (
    DTYPE_ALIASES,
    ENCODINGS,
    Activations,
    InputError,
    MeshShape,
    checked_choices,
    near_names,
    quantizable,
    some_of,
)
from lang_core.ops import CACHE_ENCODINGS
from tapeline.analysis.inspecting import GRAPH_FORMATS
from tapeline.quantizing import AUTO, Budget, check_budget
from transformer_core import POSITIONS, STORED, WINDOW_CACHES

if TYPE_CHECKING:
    from transformer_core.models import Model

PER_DEVICE_TARGET: Final = "stablehlo-per-device"
"""Target that is no device: StableHLO of one device of a mesh, for other engines."""

TARGETS: Final = ("none", "llvm-cpu", "vmvx", "vulkan-spirv", "cuda", PER_DEVICE_TARGET)
"""Targets that an export compiles for; none compiles nothing."""

CHOICES: Final = {
    "positions": tuple(POSITIONS),
    "window_caches": tuple(WINDOW_CACHES),
    "kv_cache": CACHE_ENCODINGS,
    "dtype": ("f32", "bf16", "f16"),
    "activations": ("exact", "q8"),
    "weights": ("external", "inline", "none"),
    "lowering": ("streaming", "buffered"),
    "verify": ("auto", "none", "parse", "interpreter", "iree", "jax", "reference"),
    "kernels": ("none", "tuned"),
}
"""Options that take one of a few values, with the values."""

RARE: Final = (
    "locations",
    "lowering",
    "page_tokens",
    "positions",
    "reference_python",
    "report",
    "stablehlo_target_version",
    "window_caches",
)
"""Options that the help of ``tapeline export`` leaves out, because their defaults suit nearly everyone."""

_OPTIONAL: Final = ("window_caches", "kv_cache")
_ROW_ENTRY_POINTS: Final = ("prefill", "decode")
_COUNTS: Final = (
    "batch",
    "sequence",
    "max_sequence",
    "verify_tokens",
    "slots",
    "pages",
    "page_tokens",
    "adapters",
    "adapter_rank",
    "num_layers",
    "max_memory",
)
_FORMER: Final = {"score": "verify", "score_tokens": "verify_tokens"}
"""Former names of an entry point and an option, with the present ones."""

_TARGET_ALIASES: Final = {"cpu": "llvm-cpu", "llvm_cpu": "llvm-cpu", "vulkan": "vulkan-spirv"}
_MIX: Final = re.compile(r"(?<=_k)_(?:s|m|l|xl)$")
_BITS: Final = re.compile(r"\d+")
_PAGE_TOKENS: Final = 32
_ATTRIBUTE: Final = re.compile(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", re.MULTILINE)
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


class ExportKeywords(TypedDict, total=False):
    """Fields of ``ExportOptions`` as keyword arguments, without ``model`` and ``output``."""

    adapter: Sequence[str]
    entry_points: Sequence[str] | None
    batch: int
    sequence: int | None
    max_sequence: int | None
    positions: str
    window_caches: str | None
    kv_cache: str | None
    verify_tokens: int | None
    slots: int | None
    pages: int | None
    page_tokens: int | None
    adapters: int | None
    adapter_rank: int
    mesh: str | None
    dtype: str
    quantize: str | None
    target_bpw: float | None
    max_loss: float | None
    calibration: Path | None
    activations: Activations
    weights: str
    lowering: str
    num_layers: int | None
    target: Sequence[str]
    verify: str
    reference_python: str | None
    stablehlo_target_version: str
    max_memory: int | None
    resume: bool
    overwrite: bool
    tune: bool
    kernels: str
    locations: bool
    report: Path | None
    dump_tags: Sequence[str]
    graph: Sequence[str]


@checked_choices
@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export.

    The flags of ``tapeline export`` are these attributes, with these texts as their help.

    Attributes:
        model: Model to export: a Hugging Face directory, a .gguf file, org/name[@revision] or org/name:Q4_K_M on the
            hub, or demo.
        output: Output directory of the bundle. Default: the name of the model's file, directory or repository, or
            tapeline-demo.
        adapter: LoRA adapter to merge, as DIR[=WEIGHT]: a PEFT directory or a name on the hub.
        entry_points: Entry points, separated by commas. Default: prefill,decode for causal language models, forward
            for encoders.
        batch: Number of sequences per call.
        sequence: Number of tokens per call of forward or prefill. Default: 64, or the model's limit if it is lower;
            encoders of texts get several lengths, up to the model's limit or 2048; 128 with `slots`.
        max_sequence: Capacity of the KV cache, in tokens. Default: the model's context length, at most 2048.
        positions: per_row, with batch=N, is an older spelling of slots=N.
        window_caches: KV caches of sliding-window layers: ring keeps the window only, whole keeps every position.
            Default: ring, or whole with `pages`.
        kv_cache: Encoding of the KV cache: q8_0 or q4_0, in blocks of 32 numbers with an f16 scale. Default: not
            quantized, of `dtype`.
        verify_tokens: Number of tokens per call of score, or of verify_row with `slots`. Default: `sequence`; without
            verify_row if `slots` is given.
        slots: Maximum number of sequences the server decodes at once. Default: a bundle for generate and chat, without
            slots.
        pages: Number of KV-cache pages shared by all sequences (one is reserved). Needs `slots`. Default: a contiguous
            cache per slot.
        page_tokens: Number of tokens per KV-cache page: a multiple of 16 that divides `max_sequence`. Default: 32, or
            16 if 32 does not divide it.
        adapters: Number of LoRA adapters that a server keeps at once for a bundle with `slots`; each request chooses
            one. Default: none.
        adapter_rank: Maximum rank of such an adapter.
        mesh: Axes of a device mesh, such as tp=4,dp=2: writes the shardings of all tensors to kernel_config.json.
        dtype: Dtype of activations and unquantized weights.
        quantize: Encoding of weight matrices: none, stored (as in the GGUF file), auto (each its own, by measured
            loss), or one of QUANTIZABLE. Default: stored for quantized GGUF files, else none.
        target_bpw: Maximum bits per weight of the matrices, for quantize=auto. Default: 4.5, unless `max_loss` is
            given.
        max_loss: Maximum loss for quantize=auto: KL divergence of the logits, in nats per token.
        calibration: Text file over which quantize=auto measures loss. Default: a built-in text.
        activations: Activations of products with quantized weights: exact (16-bit integers in blocks of 32 on
            devices), or q8 (rounded to 8 bits).
        weights: Location of the weights: an archive beside the module (external), constants in the module (inline), or
            none (only the module and its configuration).
        lowering: streaming records the model twice in bounded memory, buffered records it once and keeps the graph.
            Both write the same text.
        num_layers: Number of layers to export, counted from the first. Default: all.
        target: Compiler targets, separated by commas: llvm-cpu, vmvx, vulkan-spirv, cuda; or none.
        verify: Verification. parse: StableHLO's verifier. interpreter, iree, jax: also compares the results with the
            eager context. reference: also compares tokens and logits with transformers or llama.cpp. auto: same as
            iree.
        reference_python: Python interpreter with the packages for verify=reference. Default: the environment variable
            TAPELINE_REFERENCE_PYTHON, or the current interpreter.
        stablehlo_target_version: Oldest version of StableHLO that can read module.vhlo.
        max_memory: Memory budget of the export, such as 1GiB (in Python, a number of bytes). The export works in chunks
            that fit, or fails before it starts. Default: unlimited.
        resume: Continue an interrupted export: redo only missing or changed files.
        overwrite: Replace a bundle of another model or, without `output`, of other settings. Directories that are not
            bundles are never replaced.
        tune: Compile with several sets of compiler flags, measure each on this machine, and keep the fastest.
        kernels: Kernels for attention, linear layers and norms. tuned: the configurations that `tapeline tune`
            selected, or else the kernels' heuristics.
        locations: Write module paths and kernel labels as locations of ops, for IREE's dumps and profiles.
        report: File for a copy of the JSON report.
        dump_tags: Tags and kernel tensors to keep dumpable, separated by commas (globs allowed): also builds the debug
            module.
        graph: Formats of the graph with repeated blocks collapsed, separated by commas: dot, svg, json.

    Raises:
        InputError: a value is out of its range or not among the choices.

    >>> ExportOptions("demo", Path("bundle"), target=("vmxv",))
    Traceback (most recent call last):
        ...
    lang_core._errors.InputError: target=vmxv: unknown 'vmxv': known are none, llvm-cpu, vmvx, ...'vmvx'?
    """

    model: str = "demo"
    output: Path = Path("tapeline-demo")
    adapter: Sequence[str] = ()
    entry_points: Sequence[str] | None = None
    batch: int = 1
    sequence: int | None = None
    max_sequence: int | None = None
    positions: str = "shared"
    window_caches: str | None = None
    kv_cache: str | None = None
    verify_tokens: int | None = None
    slots: int | None = None
    pages: int | None = None
    page_tokens: int | None = None
    adapters: int | None = None
    adapter_rank: int = 16
    mesh: str | None = None
    dtype: str = "f32"
    quantize: str | None = None
    target_bpw: float | None = None
    max_loss: float | None = None
    calibration: Path | None = None
    activations: Activations = "exact"
    weights: str = "external"
    lowering: str = "streaming"
    num_layers: int | None = None
    target: Sequence[str] = ("llvm-cpu",)
    verify: str = "auto"
    reference_python: str | None = None
    stablehlo_target_version: str = ARTIFACT_VERSION
    max_memory: int | None = None
    resume: bool = False
    overwrite: bool = False
    tune: bool = False
    kernels: str = "none"
    locations: bool = False
    report: Path | None = None
    dump_tags: Sequence[str] = ()
    graph: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, value in (
            ("dtype", canonical_dtype(self.dtype)),
            ("target", canonical_targets(self.target)),
            ("quantize", canonical_encoding(self.quantize)),
        ):
            object.__setattr__(self, name, value)
        self._take_rows_as_slots()
        for name in _COUNTS:
            _check_count(name, getattr(self, name))
        for name, values in CHOICES.items():
            if name not in _OPTIONAL or getattr(self, name) is not None:
                check_names(name, (getattr(self, name),), values)
        for name, values in (("target", TARGETS), ("graph", GRAPH_FORMATS)):
            _check_sequence(name, getattr(self, name))
            if getattr(self, name):
                check_names(name, getattr(self, name), values)
        if "none" in self.target:
            raise InputError(f"target={','.join(self.target)}: none goes with no other target")
        if self.entry_points is not None:
            _check_sequence("entry_points", self.entry_points)
            object.__setattr__(self, "entry_points", tuple(_FORMER.get(name, name) for name in self.entry_points))
        _check_sequence("adapter", self.adapter)
        _check_quantize(self.quantize)
        _ = self.budget
        _ = self.mesh_shape
        _check_tags(self.dump_tags)
        if not _VERSION.fullmatch(self.stablehlo_target_version):
            raise InputError(
                f"stablehlo_target_version={self.stablehlo_target_version}: expected a version such as "
                f"{ARTIFACT_VERSION}"
            )

    def _take_rows_as_slots(self) -> None:
        """Reads ``positions=per_row`` as slots, which then name their entry points by themselves.

        Raises:
            InputError: the numbers of rows differ, or an entry point does not support slots.
        """
        if self.positions != "per_row":
            return
        names = () if self.entry_points is None else self.entry_points
        if self.slots not in (None, self.batch) and self.batch != 1:
            raise InputError(
                f"positions=per_row with batch={self.batch} is an older spelling of slots={self.batch}, and slots is "
                f"{self.slots}: leave out positions and batch"
            )
        others = [name for name in names if name not in _ROW_ENTRY_POINTS]
        if others:
            raise InputError(
                f"entry_points={','.join(names)} with positions=per_row, which is an older spelling of slots: they "
                f"have entry points of their own, leave out entry_points"
            )
        rows = self.batch if self.slots is None else self.slots
        for name, value in (("slots", rows), ("batch", 1), ("entry_points", None)):
            object.__setattr__(self, name, value)

    @property
    def mesh_shape(self) -> MeshShape | None:
        """Mesh of the bundle; None for one device."""
        return None if self.mesh is None else MeshShape.parse(self.mesh)

    @property
    def cache_form(self) -> str:
        """Form of the caches of sliding-window layers: ``ring`` or ``whole``; rings have no pages."""
        return self.window_caches or ("ring" if self.pages is None else "whole")

    @property
    def paging(self) -> tuple[int, int] | None:
        """Number of pages and tokens per page; None without pages."""
        if self.pages is None:
            return None
        whole = self.max_sequence is None or self.max_sequence % _PAGE_TOKENS == 0
        return self.pages, self.page_tokens or (_PAGE_TOKENS if whole else _PAGE_TOKENS // 2)

    @property
    def compiled(self) -> tuple[str, ...]:
        """Targets that a compiler makes a module for."""
        return tuple(target for target in self.target if target != PER_DEVICE_TARGET)

    @property
    def budget(self) -> Budget | None:
        """Limit of encodings that are chosen by measured loss; None if they are not.

        Raises:
            InputError: limits contradict each other, or are given without ``quantize=auto``.
        """
        if self.calibration is not None and self.quantize != AUTO:
            raise InputError(f"calibration={self.calibration}: is the text of quantize={AUTO}: give it too")
        return check_budget(self.quantize, self.target_bpw, self.max_loss)

    @property
    def encoding(self) -> str | None:
        """Encoding of packed matrices, or ``stored``; None if matrices are not packed, or the file decides."""
        return None if self.quantize == "none" else self.quantize


def option_texts() -> dict[str, str]:
    """Returns the description of each option, from the docstring of ``ExportOptions``.

    >>> option_texts()["batch"]
    'Number of sequences per call.'
    """
    attributes = (ExportOptions.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    texts = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(attributes)}
    return {name: text.replace("QUANTIZABLE", ", ".join(quantizable())) for name, text in texts.items()}


def export_options(model: str, output: Path, given: ExportKeywords) -> ExportOptions:
    """Returns the options of keyword arguments.

    Raises:
        InputError: a name is unknown, or a value is refused.
    """
    known = [field.name for field in fields(ExportOptions)]
    options: dict[str, Any] = {_FORMER.get(name, name): value for name, value in given.items()}
    for name in options:
        if name not in known:
            raise InputError(f"unknown option {name!r}: known are {some_of(name, known)}{near_names(name, known)}")
    return ExportOptions(model, output, **options)


def canonical_dtype(name: str) -> str:
    """Returns our name of a dtype; other texts as they are.

    >>> canonical_dtype("float16")
    'f16'
    """
    return DTYPE_ALIASES.get(name.lower(), name) if isinstance(name, str) else name


def canonical_targets(names: Sequence[str]) -> Sequence[str]:
    """Returns our names of targets; other texts as they are.

    >>> canonical_targets(["cpu", "vmvx"])
    ('llvm-cpu', 'vmvx')
    """
    return names if isinstance(names, str) else tuple(_TARGET_ALIASES.get(name, name) for name in names)


def canonical_encoding(name: str | None) -> str | None:
    """Returns our name of an encoding, which other programs write in capitals or with hyphens.

    >>> canonical_encoding("Q8_0")
    'q8_0'
    """
    return name if not isinstance(name, str) else name.lower().replace("-", "_")


def check_names(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Checks that each name is known, that none is given twice, and that there is one.

    Raises:
        InputError: a name is unknown or given twice, or there is none.
    """
    text = ",".join(map(str, names))
    for name in names:
        if name not in known:
            near = near_names(str(name), known)
            raise InputError(f"{option}={text}: unknown {name!r}: known are {some_of(str(name), known)}{near}")
    if not names or len(set(names)) != len(names):
        raise InputError(f"{option}={text}: name each of {', '.join(known)} at most once, and at least one")


def checked_entry_points(names: Sequence[str] | None, model: "Model[Any]") -> tuple[str, ...]:
    """Returns the names of entry points; the model's default if None.

    Raises:
        InputError: the model lacks an entry point, or one is named twice.
    """
    if names is None:
        return model.DEFAULT_ENTRY_POINTS
    check_names("entry_points", names, model.ENTRY_POINTS)
    return tuple(names)


def _check_count(option: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InputError(f"{option}={value!r}: expected a whole number above 0")


def _check_sequence(option: str, value: object) -> None:
    if isinstance(value, str):
        raise InputError(f"{option}={value!r}: expected a sequence of names, such as [{value!r}]")


def _check_tags(tags: Sequence[str]) -> None:
    _check_sequence("dump_tags", tags)
    if not all(tags) or len(set(tags)) != len(tags):
        raise InputError(f"dump_tags={','.join(tags)}: expected names or globs, each once, such as '*.output'")


def _check_quantize(name: str | None) -> None:
    if name is None or name in ("none", STORED, AUTO, *quantizable()):
        return
    known = f"none, {STORED}, {AUTO}, {', '.join(quantizable())}"
    encoding = _MIX.sub("", name)  # llama.cpp's Q4_K_M is a file whose matrices are mostly Q4_K
    if encoding in quantizable():
        raise InputError(
            f"quantize={name}: is a mix of encodings that llama.cpp chooses: give quantize={AUTO} for one by measured "
            f"loss, or quantize={encoding} for all matrices; quantize={STORED} keeps those of a GGUF file"
        )
    if encoding in ENCODINGS:
        nearest = min(
            (other for other in quantizable() if other.startswith("q")), key=lambda other: _distance(encoding, other)
        )
        raise InputError(
            f"quantize={name}: weights cannot be quantised as {encoding}; quantize={STORED} keeps those that a GGUF "
            f"file has: known are {known}; the nearest is {nearest}, with {_weight_bits(nearest):g} bits per weight "
            f"({encoding} has {_weight_bits(encoding):g})"
        )
    if name in ("f32", "f16", "bf16") or name in DTYPE_ALIASES:
        dtype = DTYPE_ALIASES.get(name, name)
        raise InputError(
            f"quantize={name}: {dtype} is no encoding of packed matrices: give quantize=none with dtype={dtype}"
        )
    bits = _BITS.search(name)
    near = near_names(name, [STORED, AUTO, *quantizable()])
    if not near and bits is not None:
        nearest = next((other for other in quantizable() if ENCODINGS[other].bits == int(bits[0])), None)
        near = "" if nearest is None else f"; did you mean {nearest!r}?"
    raise InputError(f"quantize={name}: unknown: known are {known}{near}")


def _weight_bits(name: str) -> float:
    """Returns the bits that an encoding stores per weight, scales included."""
    return 8 * ENCODINGS[name].block_bytes / ENCODINGS[name].block


def _distance(wanted: str, other: str) -> tuple[float, bool]:
    """Returns how far the sizes of two encodings are apart; of equal distances, more bits come first."""
    difference = _weight_bits(other) - _weight_bits(wanted)
    return abs(difference), difference < 0
