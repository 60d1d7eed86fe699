"""Options of an export and the checks of their values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypedDict

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
from tapeline.analysis.inspecting import GRAPH_FORMATS
from transformer_core import STORED
from transformer_core.models import POSITIONS, WINDOW_CACHES, Model

PER_DEVICE_TARGET: Final = "stablehlo-per-device"
"""Target that is no device: StableHLO of one device of a mesh, for other engines."""

TARGETS: Final = ("none", "llvm-cpu", "vmvx", "vulkan-spirv", "cuda", PER_DEVICE_TARGET)
"""Targets that an export compiles for; none compiles nothing."""

CHOICES: Final = {
    "positions": tuple(POSITIONS),
    "window_caches": tuple(WINDOW_CACHES),
    "dtype": ("f32", "bf16", "f16"),
    "activations": ("exact", "q8"),
    "weights": ("external", "inline", "none"),
    "lowering": ("streaming", "buffered"),
    "verify": ("auto", "none", "parse", "interpreter", "iree", "jax", "reference"),
    "kernels": ("none", "tuned"),
}
"""Options that take one of a few values, with the values."""

_ROW_ENTRY_POINTS: Final = ("prefill", "decode")
_COUNTS: Final = (
    "batch",
    "sequence",
    "max_sequence",
    "score_tokens",
    "slots",
    "pages",
    "page_tokens",
    "num_layers",
    "max_memory",
)
_TARGET_ALIASES: Final = {"cpu": "llvm-cpu", "llvm_cpu": "llvm-cpu", "vulkan": "vulkan-spirv"}
_MIX: Final = re.compile(r"(?<=_k)_(?:s|m|l|xl)$")
_BITS: Final = re.compile(r"\d+")
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


class ExportKeywords(TypedDict, total=False):
    """Fields of ``ExportOptions`` as keyword arguments, without ``model`` and ``output``."""

    adapter: Sequence[str]
    entry_points: Sequence[str] | None
    batch: int
    sequence: int | None
    max_sequence: int | None
    positions: str
    window_caches: str
    score_tokens: int | None
    slots: int | None
    pages: int | None
    page_tokens: int
    mesh: str | None
    dtype: str
    quantize: str | None
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
    """Options of an export. The flags of ``tapeline export`` have the same names.

    Attributes:
        model: Hugging Face directory, ``.gguf`` file, name of the hub, or ``demo`` for the built-in model.
        output: directory of the bundle.
        adapter: LoRA adapters, merged in this order: directories of PEFT or names of the hub, each with ``=WEIGHT`` if
            that is not 1.
        entry_points: names of the entry points; None takes the model's default: prefill and decode of causal language
            models, forward of encoders.
        batch: sequences per call, B.
        sequence: tokens that one call of forward or prefill takes; None is 64, or fewer if the model can less.
        max_sequence: positions that the key/value caches hold; None is the model's context length, 2048 at most.
        positions: ``shared`` by all sequences of a batch; ``per_row`` is an older spelling of ``slots``, as many as
            ``batch`` says.
        window_caches: ``ring`` keeps a layer's window, ``whole`` every position.
        score_tokens: tokens that one call of score takes; None is as ``sequence``. With ``slots``, those of
            ``score_row``, with which a server verifies drafts; None is a bundle without.
        slots: maximum number of sequences that a server decodes at once; None is a bundle without.
            ``sequence`` is then the most tokens that a call of prefill_row takes: 128 if None, or the capacity.
        pages: pages that the caches of a bundle with slots are, which rows then share by the length of their
            sequences, one of them for nobody; None gives every row ``max_sequence`` positions of its own.
        page_tokens: positions of a page, of which ``max_sequence`` is a multiple: 32, or another multiple of 16.
        mesh: axes of a mesh of devices such as ``tp=4,dp=2``: the description then says how tensors are cut; None is
            one device. docs/sharding.md has the rules.
        dtype: dtype of activations and unquantized weights.
        quantize: encoding of matrices: ``none``, ``stored`` as a GGUF file has them, or one to quantise to, such as
            ``q8_0``; None is ``stored`` for a GGUF file with packed matrices, else ``none``.
        activations: form in which products with packed weights take x: ``exact``, which is 16-bit integers in blocks of
            32 on devices, or ``q8``, rounded to 8 bits.
        weights: ``external`` archive, ``inline`` constants of the module, or ``none``.
        lowering: ``streaming`` keeps the recording on disk, ``buffered`` in memory; the module's text is the same.
        num_layers: number of layers, the first ones; None is all.
        target: kinds of device to compile for; may be empty. ``stablehlo-per-device`` writes the program of one device
            of the mesh, with explicit collectives.
        verify: ``parse`` checks the module, ``interpreter``, ``iree`` and ``jax`` also the results; ``jax`` on one
            device, and on those of the mesh if they are there; ``reference`` also against transformers or
            llama.cpp; ``auto`` is ``iree`` if there are weights and a target.
        reference_python: Python interpreter that has the packages of ``verify=reference``; None is that of the
            environment variable ``TAPELINE_REFERENCE_PYTHON``, or the one that runs the export.
        stablehlo_target_version: oldest version of StableHLO that has to read ``module.vhlo``.
        max_memory: budget in bytes for anonymous memory; None is unlimited.
        resume: True continues an interrupted export.
        overwrite: True replaces a bundle of another model; a directory that is not a bundle is never replaced.
        tune: True compiles with several sets of flags and keeps the fastest on this machine.
        kernels: ``tuned`` puts kernels in place of a model's composites.
        locations: True writes each op's module path, with a kernel's label, as its location, which IREE's dumps and
            profiles show.
        report: file for a copy of the report.
        dump_tags: tags and tensors of kernels, or globs of them, that a dump can show; builds the debug module.
        graph: forms of the graph that the bundle holds.

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
    window_caches: str = "ring"
    score_tokens: int | None = None
    slots: int | None = None
    pages: int | None = None
    page_tokens: int = 32
    mesh: str | None = None
    dtype: str = "f32"
    quantize: str | None = None
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
            check_names(name, (getattr(self, name),), values)
        for name, values in (("target", TARGETS), ("graph", GRAPH_FORMATS)):
            _check_sequence(name, getattr(self, name))
            if getattr(self, name):
                check_names(name, getattr(self, name), values)
        if "none" in self.target:
            raise InputError(f"target={','.join(self.target)}: none goes with no other target")
        if self.entry_points is not None:
            _check_sequence("entry_points", self.entry_points)
        _check_sequence("adapter", self.adapter)
        _check_quantize(self.quantize)
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
    def compiled(self) -> tuple[str, ...]:
        """Targets that a compiler makes a module for."""
        return tuple(target for target in self.target if target != PER_DEVICE_TARGET)

    @property
    def encoding(self) -> str | None:
        """Encoding of packed matrices, or ``stored``; None if matrices are not packed, or the file decides."""
        return None if self.quantize == "none" else self.quantize


def export_options(model: str, output: Path, given: ExportKeywords) -> ExportOptions:
    """Returns the options of keyword arguments.

    Raises:
        InputError: a name is unknown, or a value is refused.
    """
    known = [field.name for field in fields(ExportOptions)]
    for name in given:
        if name not in known:
            raise InputError(f"unknown option {name!r}: known are {some_of(name, known)}{near_names(name, known)}")
    return ExportOptions(model, output, **given)


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


def checked_entry_points(names: Sequence[str] | None, model: Model[Any]) -> tuple[str, ...]:
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
    if name is None or name in ("none", STORED, *quantizable()):
        return
    known = f"none, {STORED}, {', '.join(quantizable())}"
    encoding = _MIX.sub("", name)  # llama.cpp's Q4_K_M is a file whose matrices are mostly Q4_K
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
    near = near_names(name, [STORED, *quantizable()])
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
