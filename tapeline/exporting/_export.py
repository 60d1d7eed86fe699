"""The export: a checkpoint in, a verified bundle out."""

import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compile_hlo import lower_module, text_file
from compile_hlo.portable import verify_text
from lang_core import ENCODINGS, CachedWeights, VerificationError, WeightSource, has_extra
from run_iree import available, check_text
from run_iree.archive import WrittenArchive
from tapeline.analysis.drawing import write_losses
from tapeline.analysis.inspecting import write_graphs
from tapeline.bundle import (
    ARCHIVE,
    ARTIFACT,
    DEBUG_MODULE,
    LOSSES,
    MARK,
    MODULE,
    PER_DEVICE,
    REPORT,
    Bundle,
    PhaseMeter,
    Steps,
    check_output,
    staged,
)
from tapeline.cli import Progress, ProgressEvent, no_progress
from tapeline.compare import precision_of
from tapeline.exporting._adapters import with_adapters
from tapeline.exporting._auto import with_plan
from tapeline.exporting._budget import check_budget
from tapeline.exporting._compile import compile_targets
from tapeline.exporting._debug import lower_debug
from tapeline.exporting._describe import write_description
from tapeline.exporting._load import Export, exact_entry_points, exact_weights, load, one_pass
from tapeline.exporting._memory import kept_bytes
from tapeline.exporting._option_checks import check_options
from tapeline.exporting._options import PER_DEVICE_TARGET, ExportOptions
from tapeline.exporting._portable import write_portable
from tapeline.exporting._predict import KeptTexts, Prediction, bundled_files, predict
from tapeline.exporting._producer import producer
from tapeline.exporting._reference import check_reference
from tapeline.exporting._replacing import check_replaced, place_of, settings_of
from tapeline.exporting._report import copy_report, hashes_of, write_report
from tapeline.exporting._source import ModelSource, open_source
from tapeline.exporting._verify import (
    Exact,
    OnePass,
    References,
    check_devices,
    check_interpreter,
    check_jax,
    devices_of,
    invariances,
    one_of_each_kind,
    skipped,
)
from tapeline.exporting._weights import UNFINISHED, form_of, warn, write_weights
from tapeline.reference import reference_python
from tapeline.runners import Invariance


def run_export(
    options: ExportOptions,
    model_path: Path,
    meter: PhaseMeter,
    progress: Progress = no_progress,
    base: Path = Path(),
    on_unverified: Callable[[Path], object] | None = None,
) -> None:
    """Exports a model; afterwards ``options.output`` is a bundle, or unchanged.

    Args:
        options: options of the export.
        model_path: the model as a path.
        meter: measures the phases.
        progress: receives steps, warnings and bytes.
        base: directory that relative paths of adapters start from.
        on_unverified: receives the directory of the bundle before its text and its results are verified, if they are to
            be; the directory is gone after the call, and its report, portable module and graph are still missing.

    Raises:
        InputError: the model, the sizes or the output directory are wrong, or the budget does not suffice.
        CompileError: a target's compiler refuses the module.
        VerificationError: the bundle's results differ from the model's.
    """
    check_options(options)
    check_output(options.output)
    with (
        open_source(options.model, model_path, options.weights != "none", progress) as opened,
        with_adapters(opened, options.adapter, base, progress) as whole,
        with_plan(whole, options, meter, progress) as source,
        KeptTexts() as texts,
    ):
        with meter.phase("load"):
            export = load(options, source, meter, progress)
            check_replaced(export, model_path)
            export.settings, export.place = settings_of(options), place_of(options, model_path)
        with meter.phase("lower"):
            prediction = predict(export, source, texts)
        if export.kernels is not None:
            progress(ProgressEvent(export.kernels.summary()))
        check_budget(export.options, prediction, meter)
        with staged(options.output, resume=options.resume) as staging:
            earlier = (staging, options.output) if options.resume else ()
            _Run(export, source, staging, Steps(staging, earlier), prediction, texts, on_unverified).run()
    if options.report is not None:
        copy_report(options.output, options.report)


class _Run:
    """An export into a directory. Each step is done unless an earlier run did the same."""

    def __init__(
        self,
        export: Export,
        source: ModelSource,
        staging: Path,
        steps: Steps,
        prediction: Prediction,
        texts: KeptTexts,
        on_unverified: Callable[[Path], object] | None,
    ) -> None:
        self._on_unverified = on_unverified
        self._export = export
        self._source = source
        self._staging = staging
        self._steps = steps
        self._prediction = prediction
        self._texts = texts
        self._archive: WrittenArchive | None = None

    def run(self) -> None:
        """Fills the directory."""
        meter = self._export.meter
        self._steps.begin(UNFINISHED)
        with meter.phase("lower"):
            self._lower()
            self._lower_debug()
        with meter.phase("parameters"):
            self._write_weights()
        with meter.phase("compile"):
            compile_targets(self._export, self._staging, self._steps)
        if self._on_unverified is not None and self._verifies:
            self._finish_weights()
            self._describe()
            self._on_unverified(self._staging)
        with meter.phase("verify"):
            self._verify_text()
        with meter.phase("parameters"):
            self._finish_weights()
        self._draw()
        self._draw_losses()
        self._describe()
        with meter.phase("verify"):
            self._verify_results()
        write_report(self._export, self._staging, self._prediction, self._steps)
        (self._staging / self._steps.FILE).unlink()  # the report has them now

    def _say(self, text: str) -> None:
        self._export.progress(ProgressEvent(text))

    def _lower(self) -> None:
        """Writes the module's text, and records its facts; the text alone need not be made again."""
        export, options = self._export, self._export.options
        key = {"text": self._prediction.text_sha256, "weights": options.weights}
        if options.weights == "inline":
            key["source"] = self._source.identity
        if (known := self._steps.result("lower", key)) is not None:
            export.lowered, export.nonfinite = self._prediction.lowered, known["nonfinite"]
            return
        (self._staging / MODULE).unlink(missing_ok=True)
        streaming = options.lowering == "streaming"
        if streaming and self._texts.move(MODULE, self._staging / MODULE):
            export.lowered = self._prediction.lowered
        else:
            form = form_of(options.weights, self._export.weights, export.nonfinite)
            with text_file(self._staging / MODULE) as text:
                export.lowered = lower_module(
                    export.entry_points, text.write, form, streaming=streaming, locations=options.locations
                )
        self._steps.finish("lower", key, {MODULE: None}, {"nonfinite": export.nonfinite})

    def _lower_debug(self) -> None:
        export, options = self._export, self._export.options
        if export.debug is None:
            return
        key = {"text": self._prediction.debug_sha256, "weights": options.weights}
        if options.weights == "inline":
            key["source"] = self._source.identity

        def make() -> None:
            if self._texts.move(DEBUG_MODULE, self._staging / DEBUG_MODULE):
                return
            form = form_of(options.weights, export.weights, {})
            with text_file(self._staging / DEBUG_MODULE) as text:
                lower_debug(export.entry_points, text.write, form, options.dump_tags)

        self._steps.run("lower.debug", key, [DEBUG_MODULE], make)

    @property
    def _archive_key(self) -> dict[str, Any]:
        return {
            "layout": self._prediction.archive_sha256,
            "source": self._source.identity,
            "quantize": self._export.options.encoding,
        }

    def _write_weights(self) -> None:
        export, weights = self._export, self._export.weights
        if weights is None:
            return
        if export.options.weights == "external":
            known = self._steps.result("parameters", self._archive_key)
            if known is not None:
                export.nonfinite = known["nonfinite"]
            else:
                key = f"{self._archive_key}"
                self._archive = write_weights(
                    export.lowered, weights, self._staging, key, self._prediction.chunk_bytes, export.progress
                )
                export.nonfinite = {name: counts._asdict() for name, counts in self._archive.nonfinite.items()}
        warn(export.nonfinite, weights, export.progress)

    def _finish_weights(self) -> None:
        """Waits for the archive's hash, which was made meanwhile."""
        if self._archive is not None:
            result = {"nonfinite": self._export.nonfinite}
            self._steps.finish("parameters", self._archive_key, {ARCHIVE: self._archive.sha256}, result)
            self._archive = None

    @property
    def _module_sha256(self) -> str:
        return self._steps.sha256[MODULE]

    def _verify_text(self) -> None:
        export, verify = self._export, self._export.options.verify != "none"
        modules = [MODULE] if export.debug is None else [MODULE, DEBUG_MODULE]
        key = {"modules": [self._steps.sha256[name] for name in modules], "verify": verify, "producer": producer()}
        per_device = PER_DEVICE_TARGET in export.options.target
        key |= {"mesh": None if export.mesh is None else export.mesh.facts(), "per_device": per_device}

        is_portable = has_extra("jax")  # StableHLO's own tools are jaxlib's; IREE parses its text, too

        def make() -> None:
            if verify:
                self._say("verifying ...")
                for module in modules:
                    (verify_text if is_portable else check_text)(self._staging / module)
            if is_portable:
                write_portable(export, self._staging)

        files = [ARTIFACT, PER_DEVICE] if per_device else [ARTIFACT]
        self._steps.run("portable", key, files if is_portable else [], make)
        if not is_portable:  # for the report: options that need the artifact were refused before
            export.left_out[ARTIFACT] = "JAX is not installed: pip install 'tapeline[jax]', and export again"

    def _draw(self) -> None:
        forms = self._export.options.graph
        if not forms:
            return
        key = {"module": self._module_sha256, "forms": forms, "producer": producer()}
        entry_points = [function.signature for function in self._export.lowered.functions]

        def make() -> None:
            write_graphs(self._staging, entry_points, forms)

        self._steps.run("graph", key, [f"graph.{form}" for form in forms], make)

    def _draw_losses(self) -> None:
        plan = self._source.plan
        if plan is None:
            return
        if not has_extra("plots"):
            self._export.left_out[LOSSES] = (
                "Matplotlib is not installed: pip install 'tapeline[plots]', and export again"
            )
            return
        key = {"losses": plan.facts, "producer": producer()}
        self._steps.run("losses", key, [LOSSES], lambda: write_losses(plan.facts, self._staging / LOSSES))

    def _describe(self) -> None:
        copied = [name for name in bundled_files() if (self._source.directory / name).is_file()]
        for name in copied:
            (self._staging / name).unlink(missing_ok=True)
            (self._staging / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(self._source.directory / name, self._staging / name)
        self._steps.end([*copied, MARK, REPORT])
        self._export.hashes = hashes_of(self._staging, copied, self._steps.sha256)
        if self._export.options.slots is not None and self._verifies:  # until it is measured
            self._export.invariance = dict.fromkeys(self._export.targets, Invariance.NONE)
        write_description(self._export, self._staging)

    @property
    def _verifies(self) -> bool:
        """True if results of the bundle are to be compared."""
        return self._export.options.verify not in ("none", "parse") and self._export.weights is not None

    def _verify_results(self) -> None:
        options, weights = self._export.options, self._export.weights
        if weights is None or not self._verifies:
            return
        key = {"files": self._export.hashes, "verify": options.verify, "targets": options.target, "mesh": options.mesh}
        key |= {"source": self._source.identity, "results": ["rows", "invariance"]}  # earlier versions have others
        key |= {} if options.verify != "reference" else {"reference": reference_python(options.reference_python)}
        known = self._steps.run("verify", key, [], functools.partial(self._results, weights))
        self._export.verification = rows = known["rows"]
        if options.slots is not None:
            self._export.invariance = {target: Invariance(kind) for target, kind in known["invariance"].items()}
            write_description(self._export, self._staging)
        left_out = [f"{row['device']}: {row['skipped']}" for row in rows if "skipped" in row]
        for reason in left_out:
            self._say(f"warning: not verified on {reason}")
        if options.verify == "iree" and len(left_out) == len(rows):
            raise VerificationError(f"verify=iree: no device could run the bundle ({'; '.join(left_out)})")
        ran = dict.fromkeys(row["device"] for row in rows if "skipped" not in row)
        if ran:  # none if the bundle is for no target
            self._say(f"verified on {', '.join(ran)}")

    def _one_pass(self, exact: Exact | None) -> OnePass | None:
        """Returns the reference of a sequence in pieces, if RoPE depends on the length of sequences."""
        prefill = one_pass(self._export, self._source)
        if prefill is None or exact is None:
            return None if prefill is None else OnePass(prefill)
        made = functools.partial(one_pass, self._export, self._source, exact=True)
        return OnePass(prefill, made, exact.weights)

    def _results(self, weights: WeightSource) -> dict[str, Any]:
        export, options = self._export, self._export.options
        kept = kept_bytes(options, export.lowered, weights)
        source = CachedWeights(weights, kept) if kept else weights
        exact: Exact | None = None
        if options.dtype in ("bf16", "f16") or options.encoding is not None or options.kv_cache is not None:
            exact = Exact(functools.partial(exact_entry_points, export, self._source), exact_weights(weights))
        bundle = Bundle(self._staging)
        devices = devices_of(options.compiled)
        work = (
            sum(spec.size for spec in export.lowered.parameters().values()) * export.sizes.batch * export.sizes.sequence
        )
        by_rows = options.slots is not None and options.verify not in ("interpreter", "jax")
        compared = [device for device in devices if skipped(device, work) is None]
        measured = invariances(bundle, compared, export.progress) if by_rows else {}
        # Entry points with the bits of another one need no comparison of their own.
        alike = measured and all(invariance is Invariance.CALLS for invariance in measured.values())
        references = References(
            one_of_each_kind(export.written) if alike else export.written,
            source,
            export.vocabulary,
            exact,
            export.entry_points,
            self._one_pass(exact),
            rounds=options.encoding is not None and options.verify != "jax",  # XLA takes activations exactly
            kv_cache=None if options.kv_cache is None else ENCODINGS[options.kv_cache],
        )
        precision = precision_of(dataclasses.asdict(options))
        if options.verify == "interpreter":
            rows = check_interpreter(
                export.entry_points, references, weights, precision, self._staging, export.progress
            )
            return {"rows": rows, "invariance": {}}
        if options.verify == "jax":
            rows = check_jax(bundle, references, precision, options.mesh_shape, export.progress)
            return {"rows": rows, "invariance": {}}
        rows = check_devices(bundle, references, precision, devices, work, export.progress)
        if options.verify == "reference":
            present = [device for device in devices if device != "vmvx" and available(device)[0]]
            rows += check_reference(export, self._source, self._staging, present)
        return {"rows": rows, "invariance": {target: invariance.value for target, invariance in measured.items()}}
