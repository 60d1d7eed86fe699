"""What an export was asked for, checked before any work."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from compile_hlo.portable import ARTIFACT_VERSION
from lang_core import ENCODINGS, QUANTIZED, InputError, near_names
from tapeline.inspecting import GRAPH_FORMATS
from transformer_core import STORED
from transformer_core.models import Model

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")
TARGETS: Final = ("none", "llvm-cpu", "vmvx", "vulkan-spirv", "cuda")


# Targets with sets of flags to choose among (autotune.iree_compiler.CANDIDATE_FLAGS).
TUNED_TARGETS: Final = ("llvm-cpu",)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The flags of tools:export; see design.md 4 or ``--help`` for their meaning."""

    model: str
    output: Path
    entry_points: tuple[str, ...] | None = None
    batch: int = 1
    sequence: int | None = None
    max_sequence: int | None = None
    positions: str = "shared"
    window_caches: str = "ring"
    score_tokens: int | None = None
    dtype: str = "f32"
    weights: str = "external"
    lowering: str = "streaming"
    num_layers: int | None = None
    targets: tuple[str, ...] = ("llvm-cpu",)
    verify: str = "auto"
    report: Path | None = None
    graph: tuple[str, ...] = ()
    stablehlo_version: str = ARTIFACT_VERSION
    max_memory: int | None = None
    resume: bool = False
    dump_tags: tuple[str, ...] = ()
    tune: bool = False
    quantize: str | None = None
    kernels: str = "none"


def check_options(options: ExportOptions) -> None:
    """Checks what no flag can say alone, before any work.

    Raises:
        InputError: flags contradict each other, or the report cannot be written.
    """
    if options.verify in ("interpreter", "iree") and options.weights == "none":
        raise InputError(
            f"--verify={options.verify} compares results, and --weights=none gives none: take --verify=parse"
        )
    if options.verify == "iree" and not options.targets:
        raise InputError("--verify=iree runs the compiled module, and --target=none gives none: name a target")
    if options.quantize == STORED and options.weights == "none":
        raise InputError(
            f"--quantize={STORED} leaves matrices as the checkpoint has them, and --weights=none reads no checkpoint: "
            f"take --quantize={' or '.join(QUANTIZED)}"
        )
    if options.tune and (options.weights == "none" or not options.targets):
        raise InputError("--tune runs what it compiled: it needs a --target, and --weights other than none")
    others = [target for target in options.targets if target not in TUNED_TARGETS]
    if options.tune and others:
        raise InputError(
            f"--tune with --target={','.join(others)}: there is nothing to try for it: tune {', '.join(TUNED_TARGETS)}"
        )
    if options.kernels != "none" and len(options.targets) > 1:
        raise InputError(
            f"--kernels={options.kernels} with --target={','.join(options.targets)}: configurations are chosen for one "
            f"device, and all targets have one module: export a bundle per target"
        )
    if options.report is None:
        return
    above = next(parent for parent in options.report.absolute().parents if parent.exists())
    if options.report.is_dir() or not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"--report {options.report}: no file can be written there: choose another")


def choices(flag: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Splits a comma list and checks each part.

    Raises:
        InputError: a part is unknown, or named twice.
    """
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    for part in parts:
        if part not in known:
            raise InputError(
                f"--{flag}={text}: unknown {part!r}: known are {', '.join(known)}{near_names(part, known)}"
            )
    if not parts or len(set(parts)) != len(parts):
        raise InputError(f"--{flag}={text}: name each of {', '.join(known)} at most once, and at least one")
    return parts


def entry_point_names(text: str) -> tuple[str, ...]:
    """The names of ``--entry_points``; which there are, the model says (``checked_entry_points``)."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def checked_entry_points(names: tuple[str, ...] | None, model: Model[Any]) -> tuple[str, ...]:
    """The names of entry points that a model has; its default where None.

    Raises:
        InputError: the model has no such entry point, or one is named twice.
    """
    if names is None:
        return model.DEFAULT_ENTRY_POINTS
    return choices("entry_points", ",".join(names), model.ENTRY_POINTS)


def targets(text: str) -> tuple[str, ...]:
    """The targets of ``--target``; ``none`` is none at all."""
    parts = choices("target", text, TARGETS)
    if "none" in parts and len(parts) > 1:
        raise InputError(f"--target={text}: none goes with no other target")
    return () if parts == ("none",) else parts


def graph_forms(text: str) -> tuple[str, ...]:
    """The forms of ``--graph``."""
    return choices("graph", text, GRAPH_FORMATS) if text else ()


def stablehlo_version(text: str) -> str:
    """The version of ``--stablehlo_target_version``; whether it can be written, StableHLO itself says.

    Raises:
        InputError: it is no version.
    """
    if not _VERSION.fullmatch(text):
        raise InputError(f"--stablehlo_target_version={text}: a version is wanted, such as {ARTIFACT_VERSION}")
    return text


def quantize(text: str) -> str | None:
    """How matrices are packed: ``--quantize``; None where they are not.

    Raises:
        InputError: there is no such way, or only reading.
    """
    if text == "none":
        return None
    if text in (STORED, *QUANTIZED):
        return text
    known = f"none, {STORED}, {', '.join(QUANTIZED)}"
    if text in ENCODINGS:
        raise InputError(
            f"--quantize={text}: nothing here quantises weights as {text}; --quantize={STORED} keeps those that a GGUF "
            f"file has: known are {known}"
        )
    raise InputError(f"--quantize={text}: unknown: known are {known}{near_names(text, [STORED, *QUANTIZED])}")


def sequence(text: str) -> int:
    """The static length of ``--sequence``."""
    if text == "dynamic":
        raise InputError(
            "--sequence=dynamic: entry points of dynamic length are not supported yet: give the number of tokens that "
            "one call takes (prefill takes longer prompts in pieces)"
        )
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"--sequence={text}: a number of tokens above 0 is wanted")
    return int(text)
