"""Turns a checkpoint into a verified bundle.

export                  the built-in demo model, to ./tapeline-demo
export MODEL            a Hugging Face directory, a .gguf file or a name of the hub, to a directory of the model's name

A bundle of the same model is replaced when the export is done; see --overwrite for others.
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
    "A Hugging Face directory, a .gguf file, org/name[@revision] or org/name:Q4_K_M of the hub, or demo.",
    flag_values=FLAGS,
)
_OUTPUT: Final = flags.DEFINE_string(
    "output",
    None,
    "The bundle's directory; by default a directory with the name of the model's file, directory or repository, or "
    "tapeline-demo.",
    flag_values=FLAGS,
)
_ADAPTER: Final = flags.DEFINE_multi_string(
    "adapter",
    [],
    "DIR[=WEIGHT]: merge a LoRA adapter of PEFT, a directory or a name of the hub; may be given several times.",
    flag_values=FLAGS,
)
_ENTRY_POINTS: Final = flags.DEFINE_string(
    "entry_points",
    None,
    "A comma list; by default prefill,decode of causal language models, forward of encoders.",
    flag_values=FLAGS,
)
_BATCH: Final = flags.DEFINE_integer("batch", 1, "Sequences per call.", lower_bound=1, flag_values=FLAGS)
_SEQUENCE: Final = flags.DEFINE_string(
    "sequence",
    None,
    "Tokens that one call of forward or prefill takes; by default 64, or fewer where the model can less. Models that "
    "embed, rank or classify texts have several lengths by default, up to the model's own, 2048 at most.",
    flag_values=FLAGS,
)
_MAX_SEQUENCE: Final = flags.DEFINE_integer(
    "max_sequence",
    None,
    "Positions that the caches hold; by default what the model was trained on, 2048 at most.",
    lower_bound=1,
    flag_values=FLAGS,
)
_POSITIONS: Final = flags.DEFINE_enum(
    "positions",
    "shared",
    CHOICES["positions"],
    "Positions are shared by all sequences of a batch, or per row for sequences of different lengths.",
    flag_values=FLAGS,
)
_WINDOW_CACHES: Final = flags.DEFINE_enum(
    "window_caches",
    "ring",
    CHOICES["window_caches"],
    "Layers with a window keep what it needs, or every position.",
    flag_values=FLAGS,
)
_SCORE_TOKENS: Final = flags.DEFINE_integer(
    "score_tokens",
    None,
    "Tokens that one call of score takes; by default as --sequence. With --slots: those of score_row, which "
    "is left out by default.",
    lower_bound=1,
    flag_values=FLAGS,
)
_SLOTS: Final = flags.DEFINE_integer(
    "slots",
    None,
    "Rows of the caches of a bundle for a server: requests share them, and calls work on some.",
    lower_bound=1,
    flag_values=FLAGS,
)
_PAGES: Final = flags.DEFINE_integer(
    "pages",
    None,
    "With --slots: pages that the caches are, which rows share by the length of their sequences, one for nobody; by "
    "default every row has --max_sequence positions of its own.",
    lower_bound=1,
    flag_values=FLAGS,
)
_PAGE_TOKENS: Final = flags.DEFINE_integer(
    "page_tokens",
    32,
    "Positions of a page; --max_sequence is a multiple of them, and they are one of 16.",
    lower_bound=16,
    flag_values=FLAGS,
)
_MESH: Final = flags.DEFINE_string(
    "mesh",
    None,
    "Axes of a mesh of devices, such as tp=4,dp=2: kernel_config.json then says how tensors are cut.",
    flag_values=FLAGS,
)
_DTYPE: Final = flags.DEFINE_enum(
    "dtype", "f32", CHOICES["dtype"], "Dtype of activations and unquantized weights.", flag_values=FLAGS
)
_QUANTIZE: Final = flags.DEFINE_string(
    "quantize",
    None,
    "Encoding of matrices: none; stored: each as the GGUF file has it (the default of a GGUF file with packed ones); "
    f"or what to quantise to, of {', '.join(quantizable())} (a GGUF file's in the same encoding stay as they are).",
    flag_values=FLAGS,
)
_ACTIVATIONS: Final = flags.DEFINE_enum(
    "activations",
    "exact",
    CHOICES["activations"],
    "How products with packed weights take x: exact (16-bit integers in blocks of 32 on devices), or q8, rounded to 8 "
    "bits.",
    flag_values=FLAGS,
)
_WEIGHTS: Final = flags.DEFINE_enum(
    "weights",
    "external",
    CHOICES["weights"],
    "An archive beside the module, constants in its text, or no weight at all (module and description only).",
    flag_values=FLAGS,
)
_LOWERING: Final = flags.DEFINE_enum(
    "lowering",
    "streaming",
    CHOICES["lowering"],
    "Record twice and keep nothing, or once and keep the graph; the text is the same.",
    flag_values=FLAGS,
)
_NUM_LAYERS: Final = flags.DEFINE_integer(
    "num_layers", None, "Number of layers, the first ones; all by default.", lower_bound=1, flag_values=FLAGS
)
_TARGET: Final = flags.DEFINE_string(
    "target", "llvm-cpu", "A comma list of llvm-cpu, vmvx, vulkan-spirv, cuda; or none.", flag_values=FLAGS
)
_VERIFY: Final = flags.DEFINE_enum(
    "verify",
    "auto",
    CHOICES["verify"],
    "parse: StableHLO's verifier. interpreter, iree, jax: also results against the eager context. reference: also "
    "tokens and logits against transformers or llama.cpp. auto: as iree.",
    flag_values=FLAGS,
)
_REFERENCE_PYTHON: Final = flags.DEFINE_string(
    "reference_python",
    None,
    "Python interpreter that has the packages of --verify=reference; by default TAPELINE_REFERENCE_PYTHON of the "
    "environment, or the one that runs this.",
    flag_values=FLAGS,
)
_STABLEHLO: Final = flags.DEFINE_string(
    "stablehlo_target_version",
    "1.0.0",
    "Consumers of StableHLO from this version on read module.vhlo.",
    flag_values=FLAGS,
)
_DRY_RUN: Final = flags.DEFINE_bool("dry_run", False, "Say what would be done; write nothing.", flag_values=FLAGS)
_HARDWARE: Final = flags.DEFINE_string(
    "hardware",
    None,
    f"With --dry_run, figures of a device, for times on the devices of --mesh: {', '.join(preset_names())}, or a TOML "
    "file.",
    flag_values=FLAGS,
)
_MAX_MEMORY: Final = flags.DEFINE_string(
    "max_memory", None, "A budget such as 1GiB: work in chunks that fit, or refuse before any work.", flag_values=FLAGS
)
_RESUME: Final = flags.DEFINE_bool(
    "resume", False, "Continue an interrupted export: do only what is missing or changed.", flag_values=FLAGS
)
_OVERWRITE: Final = flags.DEFINE_bool(
    "overwrite",
    False,
    "Replace a bundle of another model or, without --output, of other settings. A directory that is not a bundle is "
    "never replaced.",
    flag_values=FLAGS,
)
_TUNE: Final = flags.DEFINE_bool(
    "tune",
    False,
    "Compile with several sets of flags, measure each on this machine, and keep the best.",
    flag_values=FLAGS,
)
_KERNELS: Final = flags.DEFINE_enum(
    "kernels",
    "none",
    CHOICES["kernels"],
    "tuned: attention, linear layers and norms as `tapeline tune` found them best, else as their heuristics say.",
    flag_values=FLAGS,
)
_LOCATIONS: Final = flags.DEFINE_bool(
    "locations",
    False,
    "Write module paths, with labels of kernels, as locations of ops: IREE's dumps and profiles show them.",
    flag_values=FLAGS,
)
_REPORT: Final = flags.DEFINE_string("report", None, "Also write the JSON report here.", flag_values=FLAGS)
_DUMP_TAGS: Final = flags.DEFINE_string(
    "dump_tags",
    "",
    "A comma list of tags and tensors of kernels, or globs of them, that a dump is to show: builds the debug module.",
    flag_values=FLAGS,
)
_GRAPH: Final = flags.DEFINE_string(
    "graph", "", "A comma list of dot, svg, json: the graph, repeated blocks collapsed.", flag_values=FLAGS
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
