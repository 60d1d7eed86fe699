"""Exports a checkpoint as a verified bundle.

export                  the built-in demo model, to ./tapeline-demo
export MODEL            a Hugging Face directory, a .gguf file or a name on the hub, to a directory of the model's name

An existing bundle of the same model is replaced when the export is complete; for other bundles, see --overwrite.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from absl import flags

import tapeline
from lang_core import InputError, quantizable
from tapeline.analysis.inspecting import GRAPH_FORMATS
from tapeline.analysis.planning import preset_names
from tapeline.bundle import REPORT
from tapeline.cli import TerminalProgress, parse_size, say, user_path
from tapeline.command._flags import flag_translator
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.exporting import (
    CHOICES,
    TARGETS,
    ExportKeywords,
    canonical_targets,
    check_names,
    check_unnamed,
    default_output,
    prediction_text,
    report_summary,
    write_prediction,
)

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("model",),)

_MODEL: Final = flags.DEFINE_string(
    "model",
    "demo",
    "Model to export: a Hugging Face directory, a .gguf file, org/name[@revision] or org/name:Q4_K_M on the hub, "
    "or demo.",
    flag_values=FLAGS,
)
_OUTPUT: Final = flags.DEFINE_string(
    "output",
    None,
    "Output directory of the bundle. Default: the name of the model's file, directory or repository, or tapeline-demo.",
    flag_values=FLAGS,
)
_ADAPTER: Final = flags.DEFINE_multi_string(
    "adapter",
    [],
    "LoRA adapter to merge, as DIR[=WEIGHT]: a PEFT directory or a name on the hub.",
    flag_values=FLAGS,
)
_ENTRY_POINTS: Final = flags.DEFINE_string(
    "entry_points",
    None,
    "Entry points, separated by commas. Default: prefill,decode for causal language models, forward for encoders.",
    flag_values=FLAGS,
)
_BATCH: Final = flags.DEFINE_integer("batch", 1, "Number of sequences per call.", lower_bound=1, flag_values=FLAGS)
_SEQUENCE: Final = flags.DEFINE_string(
    "sequence",
    None,
    "Number of tokens per call of forward or prefill. Default: 64, or the model's limit if it is lower; encoders "
    "of texts get several lengths, up to the model's limit or 2048.",
    flag_values=FLAGS,
)
_MAX_SEQUENCE: Final = flags.DEFINE_integer(
    "max_sequence",
    None,
    "Capacity of the KV cache, in tokens. Default: the model's context length, at most 2048.",
    lower_bound=1,
    flag_values=FLAGS,
)
_POSITIONS: Final = flags.DEFINE_enum(
    "positions",
    "shared",
    CHOICES["positions"],
    "per_row, with --batch=N, is an older spelling of --slots=N.",
    flag_values=FLAGS,
)
_WINDOW_CACHES: Final = flags.DEFINE_enum(
    "window_caches",
    "ring",
    CHOICES["window_caches"],
    "KV caches of sliding-window layers: ring keeps the window only, whole keeps every position.",
    flag_values=FLAGS,
)
_SCORE_TOKENS: Final = flags.DEFINE_integer(
    "score_tokens",
    None,
    "Number of tokens per call of score, or of score_row with --slots. Default: --sequence; without score_row if "
    "--slots is given.",
    lower_bound=1,
    flag_values=FLAGS,
)
_SLOTS: Final = flags.DEFINE_integer(
    "slots",
    None,
    "Maximum number of sequences the server decodes at once. Default: a bundle for generate and chat, without slots.",
    lower_bound=1,
    flag_values=FLAGS,
)
_PAGES: Final = flags.DEFINE_integer(
    "pages",
    None,
    "Number of KV-cache pages shared by all sequences (one is reserved). Needs --slots. Default: a contiguous "
    "cache per slot.",
    lower_bound=1,
    flag_values=FLAGS,
)
_PAGE_TOKENS: Final = flags.DEFINE_integer(
    "page_tokens",
    32,
    "Number of tokens per KV-cache page: a multiple of 16 that divides --max_sequence.",
    lower_bound=16,
    flag_values=FLAGS,
)
_MESH: Final = flags.DEFINE_string(
    "mesh",
    None,
    "Axes of a device mesh, such as tp=4,dp=2: writes the shardings of all tensors to kernel_config.json.",
    flag_values=FLAGS,
)
_DTYPE: Final = flags.DEFINE_enum(
    "dtype", "f32", CHOICES["dtype"], "Dtype of activations and unquantized weights.", flag_values=FLAGS
)
_QUANTIZE: Final = flags.DEFINE_string(
    "quantize",
    None,
    f"Encoding of weight matrices: none, stored (as in the GGUF file), or one of {', '.join(quantizable())}. "
    "Default: stored for quantized GGUF files, else none.",
    flag_values=FLAGS,
)
_ACTIVATIONS: Final = flags.DEFINE_enum(
    "activations",
    "exact",
    CHOICES["activations"],
    "Activations of products with quantized weights: exact (16-bit integers in blocks of 32 on devices), or q8 "
    "(rounded to 8 bits).",
    flag_values=FLAGS,
)
_WEIGHTS: Final = flags.DEFINE_enum(
    "weights",
    "external",
    CHOICES["weights"],
    "Location of the weights: an archive beside the module (external), constants in the module (inline), or none "
    "(only the module and its configuration).",
    flag_values=FLAGS,
)
_LOWERING: Final = flags.DEFINE_enum(
    "lowering",
    "streaming",
    CHOICES["lowering"],
    "Lowering: streaming records the model twice in bounded memory, buffered records it once and keeps the graph. "
    "Both write the same text.",
    flag_values=FLAGS,
)
_NUM_LAYERS: Final = flags.DEFINE_integer(
    "num_layers",
    None,
    "Number of layers to export, counted from the first. Default: all.",
    lower_bound=1,
    flag_values=FLAGS,
)
_TARGET: Final = flags.DEFINE_string(
    "target",
    "llvm-cpu",
    "Compiler targets, separated by commas: llvm-cpu, vmvx, vulkan-spirv, cuda; or none.",
    flag_values=FLAGS,
)
_VERIFY: Final = flags.DEFINE_enum(
    "verify",
    "auto",
    CHOICES["verify"],
    "Verification. parse: StableHLO's verifier. interpreter, iree, jax: also compares the results with the eager "
    "context. reference: also compares tokens and logits with transformers or llama.cpp. auto: same as iree.",
    flag_values=FLAGS,
)
_REFERENCE_PYTHON: Final = flags.DEFINE_string(
    "reference_python",
    None,
    "Python interpreter with the packages for --verify=reference. Default: the environment variable "
    "TAPELINE_REFERENCE_PYTHON, or the current interpreter.",
    flag_values=FLAGS,
)
_STABLEHLO: Final = flags.DEFINE_string(
    "stablehlo_target_version",
    "1.0.0",
    "Oldest version of StableHLO that can read module.vhlo.",
    flag_values=FLAGS,
)
_DRY_RUN: Final = flags.DEFINE_bool(
    "dry_run", False, "Print sizes, operation counts and predicted memory, and write nothing.", flag_values=FLAGS
)
_HARDWARE: Final = flags.DEFINE_string(
    "hardware",
    None,
    f"Device for the predicted times of --dry_run: {', '.join(preset_names())}, or a TOML file.",
    flag_values=FLAGS,
)
_MAX_MEMORY: Final = flags.DEFINE_string(
    "max_memory",
    None,
    "Memory budget of the export, such as 1GiB. The export works in chunks that fit, or fails before it starts. "
    "Default: unlimited.",
    flag_values=FLAGS,
)
_RESUME: Final = flags.DEFINE_bool(
    "resume", False, "Continue an interrupted export: redo only missing or changed files.", flag_values=FLAGS
)
_OVERWRITE: Final = flags.DEFINE_bool(
    "overwrite",
    False,
    "Replace a bundle of another model or, without --output, of other settings. Directories that are not bundles "
    "are never replaced.",
    flag_values=FLAGS,
)
_TUNE: Final = flags.DEFINE_bool(
    "tune",
    False,
    "Compile with several sets of compiler flags, measure each on this machine, and keep the fastest.",
    flag_values=FLAGS,
)
_KERNELS: Final = flags.DEFINE_enum(
    "kernels",
    "none",
    CHOICES["kernels"],
    "Kernels for attention, linear layers and norms. tuned: the configurations that `tapeline tune` selected, or "
    "else the kernels' heuristics.",
    flag_values=FLAGS,
)
_LOCATIONS: Final = flags.DEFINE_bool(
    "locations",
    False,
    "Write module paths and kernel labels as locations of ops, for IREE's dumps and profiles.",
    flag_values=FLAGS,
)
_REPORT: Final = flags.DEFINE_string("report", None, "File for a copy of the JSON report.", flag_values=FLAGS)
_DUMP_TAGS: Final = flags.DEFINE_string(
    "dump_tags",
    "",
    "Tags and kernel tensors to keep dumpable, separated by commas (globs allowed): also builds the debug module.",
    flag_values=FLAGS,
)
_GRAPH: Final = flags.DEFINE_string(
    "graph",
    "",
    "Formats of the graph with repeated blocks collapsed, separated by commas: dot, svg, json.",
    flag_values=FLAGS,
)
_FORMAT: Final = FormatFlag(FLAGS)


def _list(option: str, text: str, known: Sequence[str]) -> list[str]:
    names = _parts(text)
    check_names(option, names, known)
    return names


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _targets(text: str) -> list[str]:
    names = canonical_targets(_parts(text))
    check_names("target", names, TARGETS)
    return [] if list(names) == ["none"] else [*names]


def _sequence(text: str) -> int:
    if text == "dynamic":
        raise InputError(
            "sequence=dynamic: entry points of dynamic length are not supported yet: give the number of tokens that "
            "one call takes (prefill takes longer prompts in pieces)"
        )
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"sequence={text}: expected a number of tokens above 0")
    return int(text)


def _options() -> ExportKeywords:
    return {
        "adapter": _ADAPTER.value,
        "entry_points": None if _ENTRY_POINTS.value is None else _parts(_ENTRY_POINTS.value),
        "batch": _BATCH.value,
        "sequence": None if _SEQUENCE.value is None else _sequence(_SEQUENCE.value),
        "max_sequence": _MAX_SEQUENCE.value,
        "positions": _POSITIONS.value,
        "window_caches": _WINDOW_CACHES.value,
        "score_tokens": _SCORE_TOKENS.value,
        "slots": _SLOTS.value,
        "pages": _PAGES.value,
        "page_tokens": _PAGE_TOKENS.value,
        "mesh": _MESH.value,
        "dtype": _DTYPE.value,
        "quantize": _QUANTIZE.value,
        "activations": "q8" if _ACTIVATIONS.value == "q8" else "exact",
        "weights": _WEIGHTS.value,
        "lowering": _LOWERING.value,
        "num_layers": _NUM_LAYERS.value,
        "target": _targets(_TARGET.value),
        "verify": _VERIFY.value,
        "reference_python": _REFERENCE_PYTHON.value,
        "stablehlo_target_version": _STABLEHLO.value,
        "max_memory": None if _MAX_MEMORY.value is None else parse_size("max_memory", _MAX_MEMORY.value),
        "resume": _RESUME.value,
        "overwrite": _OVERWRITE.value,
        "tune": _TUNE.value,
        "kernels": _KERNELS.value,
        "locations": _LOCATIONS.value,
        "report": Path(_REPORT.value) if _REPORT.value else None,
        "dump_tags": [part.strip() for part in _DUMP_TAGS.value.split(",")] if _DUMP_TAGS.value else (),
        "graph": _list("graph", _GRAPH.value, GRAPH_FORMATS) if _GRAPH.value else (),
    }


def main() -> None:
    """Exports, and prints the bundle's path."""
    options, base = _options(), user_path("")
    output = _OUTPUT.value or default_output(_MODEL.value, base)
    if _OUTPUT.value is None:
        check_unnamed(_MODEL.value, output, base=base, **options)
    if _HARDWARE.value and not _DRY_RUN.value:
        raise InputError("hardware: figures of a device are for predictions: add `dry_run`, or leave hardware out")
    with TerminalProgress(flag_translator(FLAGS)) as progress:
        if not _DRY_RUN.value:
            _put_bundle(tapeline.export(_MODEL.value, output, progress=progress, base=base, **options).path)
            return
        prediction = tapeline.predict_export(
            _MODEL.value, output, progress=progress, base=base, hardware=_HARDWARE.value, **options
        )
    if _REPORT.value:
        write_prediction(prediction, user_path(_REPORT.value))
    if _FORMAT.is_json:
        put_json({"bundle": user_path(output), "predicted": prediction})
    else:
        print(prediction_text(prediction))
        say(f"--dry_run: nothing was written; without it, the bundle is {user_path(output)}")


def _put_bundle(path: Path) -> None:
    if _FORMAT.is_json:
        put_json({"bundle": path, "report": path / REPORT, **report_summary(path)})
    else:
        print(path)
