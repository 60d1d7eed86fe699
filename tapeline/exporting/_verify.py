"""Verification of a bundle against the eager context."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from compile_hlo import lower_module, text_file
from compile_hlo.emit import ArgumentParameters
from compile_hlo.portable import interpret
from lang_core import (
    DeviceError,
    EagerExecutionContext,
    Encoding,
    EntryPoint,
    MeshShape,
    TapelineError,
    VerificationError,
    WeightSource,
)
from run_iree import DEVICES, available, target_of_device
from runtime import Session
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.cli import Progress, ProgressEvent
from tapeline.compare import TOLERANCE
from tapeline.divergence import (
    Arrays,
    DeviceSide,
    EagerReference,
    InterpreterRunner,
    Runner,
    example_inputs,
    locate,
    next_state,
)
from tapeline.exporting._compared import compared, no_results
from tapeline.exporting._memory import keeps_calls
from tapeline.exporting._rounded import RoundedContext
from tapeline.runners import Invariance, measured_invariance

# vmvx interprets: on more multiplications than this a check would take minutes.
_SLOW_DEVICE_LIMIT: Final = 2_000_000_000

_LOGITS: Final = "logits"
_SIZE: Final = re.compile(r"_\d+$")
IN_PIECES: Final = "prefill in pieces"
"""Name in the report of the check of a sequence in pieces."""

_NOTHING_FOUND: Final = (
    "every tensor inside agrees when it is shown: the fault is in what is left out then (block functions, fusion)"
)


@dataclass(frozen=True, slots=True)
class Exact:
    """Model in f32 with unpacked weights, which decides if two roundings differ.

    Attributes:
        entry_points: makes them.
        weights: for these.
    """

    entry_points: Callable[[], Sequence[EntryPoint]]
    weights: WeightSource


@dataclass(frozen=True, slots=True)
class OnePass:
    """Prefill of twice as many tokens, which a sequence in two pieces is compared with.

    Attributes:
        prefill: takes the sequence at once.
        exact: the same in f32 with unpacked weights; None if the model is exact.
        exact_weights: weights for that.
    """

    prefill: EntryPoint
    exact: Callable[[], EntryPoint | None] | None = None
    exact_weights: WeightSource | None = None


class References:
    """Inputs and results of every entry point in the eager context, made when first asked for.

    Entry points are run in their order, each on the caches that the one before left.

    Attributes:
        entry_points: by name.
        lowered: those that devices run, if they are others: with kernels in them.
        weights: of the model.
        vocabulary: V.
        one_pass: prefill that a sequence in pieces is compared with; None if RoPE does not depend on the length.
        rounds: whether devices round the activations of the model's products, which the eager context takes exactly.
        kv_cache: encoding of the caches; None if they are not quantized.
    """

    def __init__(
        self,
        entry_points: Sequence[EntryPoint],
        weights: WeightSource,
        vocabulary: int,
        exact: Exact | None = None,
        lowered: Sequence[EntryPoint] | None = None,
        one_pass: OnePass | None = None,
        rounds: bool = False,
        kv_cache: Encoding | None = None,
    ) -> None:
        self._exact = exact
        self.kv_cache: Final = kv_cache
        self._rounds: Final = rounds
        self.one_pass: Final = one_pass
        self.entry_points: Final = {entry_point.name: entry_point for entry_point in entry_points}
        self.lowered: Final = {
            entry_point.name: entry_point for entry_point in (entry_points if lowered is None else lowered)
        }
        self.weights: Final = weights
        self.vocabulary: Final = vocabulary
        self._made: dict[str, tuple[Arrays, Arrays]] = {}
        self._is_complete = False
        self._keeps: Final = keeps_calls(entry_points)

    def calls(self) -> Iterator[tuple[str, Arrays, Arrays]]:
        """Yields names of entry points, inputs and results, in order; each is there for ``of`` until the next is made.

        Those of all entry points are kept for further devices, but for rows of caches, which are made again.
        """
        if self._is_complete:
            yield from ((name, *made) for name, made in self._made.items())
            return
        state: Arrays = {}
        for entry_point in self.entry_points.values():
            if not self._keeps:
                self._made.clear()
            specs = {argument.name: argument.spec for argument in entry_point.arguments}
            inputs = example_inputs(specs, self.vocabulary, state)
            ctx = EagerExecutionContext(self.weights)
            results = entry_point(ctx, *[ctx.constant(array) for array in inputs.values()])
            outputs = {name: tensor.numpy() for name, tensor in results.items()}
            self._made[entry_point.name] = inputs, outputs
            state |= next_state(inputs, outputs)
            yield entry_point.name, inputs, outputs
        self._is_complete = self._keeps

    def of(self, name: str) -> tuple[Arrays, Arrays]:
        """Returns inputs and results of the entry point that ``calls`` yielded last, or of any if all are kept."""
        return self._made[name]

    def exact(self, name: str) -> Arrays | None:
        """Results of an entry point for the same inputs; None if the model is exact already: in f32, not packed."""
        if self._exact is None:
            return None
        entry_point = next(point for point in self._exact.entry_points() if point.name == name)
        inputs = self.unpacked(self.of(name)[0])
        ctx = EagerExecutionContext(self._exact.weights)
        given = [
            ctx.constant(inputs[argument.name].astype(argument.spec.dtype.numpy)) for argument in entry_point.arguments
        ]
        return {result: tensor.numpy() for result, tensor in entry_point(ctx, *given).items()}

    def unpacked(self, arrays: Arrays) -> Arrays:
        """Returns arrays with the entries of quantized caches in f32; a device may round some to a neighbour."""
        encoding = self.kv_cache
        if encoding is None:
            return arrays
        return {
            name: encoding.unpacked(array) if name.endswith("_cache") and array.dtype == np.int8 else array
            for name, array in arrays.items()
        }

    @property
    def rounded_context(self) -> EagerExecutionContext | None:
        """Context that rounds activations as devices do; None if they round none."""
        return RoundedContext(self.weights) if self._rounds else None

    def rounded(self, name: str) -> Arrays | None:
        """Results for the same inputs with activations rounded as devices round them; None if they round none."""
        ctx = self.rounded_context
        if ctx is None:
            return None
        inputs, _ = self.of(name)
        results = self.entry_points[name](ctx, *map(ctx.constant, inputs.values()))
        return self.unpacked({result: tensor.numpy() for result, tensor in results.items()})


def announced(references: References, place: str, progress: Progress) -> Iterator[tuple[str, Arrays, Arrays]]:
    """Yields the calls of all entry points; each is told before its results are made.

    Args:
        references: entry points to call.
        place: device that they are compared with.
        progress: receives a step per entry point.
    """
    calls, total = references.calls(), len(references.entry_points)
    for done, name in enumerate(references.entry_points):
        progress(ProgressEvent("verifying", done, total, f"{name} on {place}"))
        yield next(calls)
    next(calls, None)  # lets it know that all were made


def check_devices(
    bundle: Bundle,
    references: References,
    dtype: str,
    devices: Sequence[str],
    multiplications: int,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Runs every entry point on devices and compares with the eager context.

    Returns:
        For the report: figures per device, entry point and result; or why a device was skipped.

    Raises:
        VerificationError: a result disagrees; names device, entry point and result.
    """
    rows: list[dict[str, Any]] = []
    for device in devices:
        reason = skipped(device, multiplications)
        if reason is None:
            rows += _check_device(bundle, references, dtype, device, progress)
        else:
            rows.append({"device": device, "skipped": reason})
    return rows


def skipped(device: str, multiplications: int) -> str | None:
    """Returns why a device is not compared with the eager context; None if it is."""
    present, reason = available(device)
    if not present:
        return reason
    slow = device == "vmvx" and multiplications > _SLOW_DEVICE_LIMIT
    return "vmvx interprets; this model would take it minutes" if slow else None


def check_jax(
    bundle: Bundle, references: References, dtype: str, mesh: MeshShape | None, progress: Progress
) -> list[dict[str, Any]]:
    """Runs every entry point by XLA, on one device and on those of a mesh, and compares with the eager context.

    Returns:
        For the report: figures per place, entry point and result; or why a mesh was skipped.

    Raises:
        VerificationError: a result disagrees; names place, entry point and result.
    """
    rows: list[dict[str, Any]] = []
    for cut in (None, mesh) if mesh is not None and mesh.size > 1 else (None,):
        place = "jax" if cut is None else f"jax mesh={cut}"
        try:
            with open_session(bundle, Place("jax", mesh=cut)) as session:
                rows += _check_session(bundle, session, references, dtype, place, progress)
        except DeviceError as error:
            if cut is None:
                raise
            rows.append({"device": place, "skipped": str(error)})
    return rows


def invariances(bundle: Bundle, devices: Collection[str], progress: Progress) -> dict[str, Invariance]:
    """Returns by target among which calls a token's bits are the same on its device."""
    measured = {}
    for device in sorted(devices):
        progress(ProgressEvent(f"comparing a token alone and beside others on {device} ..."))
        with bundle.session(device) as session:
            measured[target_of_device(device)] = measured_invariance(bundle, session)
    return measured


def _check_device(
    bundle: Bundle, references: References, dtype: str, device: str, progress: Progress
) -> list[dict[str, Any]]:
    with bundle.session(device) as session:
        return _check_session(bundle, session, references, dtype, device, progress)


def _check_session(
    bundle: Bundle, session: Session, references: References, dtype: str, place: str, progress: Progress
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    side = DeviceSide(bundle, session)
    for name, inputs, expected in announced(references, place, progress):
        try:
            results, wanted = references.unpacked(side.run(name, inputs)), references.unpacked(expected)
            rows += compared(place, name, results, wanted, dtype, references.exact, references.rounded)
        except VerificationError as error:
            raise _located(error, references, name, side.runner(references.weights), dtype, progress) from None
    if references.one_pass is not None:
        progress(ProgressEvent(f"verifying a sequence in two pieces on {place} ..."))
        rows += _check_pieces(side, references, references.one_pass, dtype, place)
    return rows


def _check_pieces(
    side: DeviceSide, references: References, one_pass: OnePass, dtype: str, place: str
) -> list[dict[str, Any]]:
    """Compares the logits after two pieces of a sequence with those of the eager context, which takes it at once.

    The sequence's length is the capacity, at which RoPE has other frequencies than at the lengths of the pieces.
    """
    specs = {argument.name: argument.spec for argument in references.entry_points["prefill"].arguments}
    whole = {argument.name: argument.spec for argument in one_pass.prefill.arguments}
    tokens, total = specs["token_ids"].shape[1], whole["token_ids"].shape[1]
    given = example_inputs(whole, references.vocabulary, {})
    given["last"] = np.full(whole["last"].shape, total - 1, np.int32)

    def logits_of(point: EntryPoint, ctx: EagerExecutionContext) -> Arrays:
        arrays = [given[argument.name].astype(argument.spec.dtype.numpy) for argument in point.arguments]
        return {_LOGITS: point(ctx, *map(ctx.constant, arrays))[_LOGITS].numpy()}

    def exact(name: str) -> Arrays | None:
        del name
        point = None if one_pass.exact is None else one_pass.exact()
        if point is None or one_pass.exact_weights is None:
            return None
        return logits_of(point, EagerExecutionContext(one_pass.exact_weights))

    def rounded(name: str) -> Arrays | None:
        del name
        ctx = references.rounded_context
        return None if ctx is None else logits_of(one_pass.prefill, ctx)

    results: Arrays = {}
    for start in (0, total - tokens):
        piece = example_inputs(specs, references.vocabulary, results)
        piece["token_ids"] = given["token_ids"][:, start : start + tokens]
        piece["position"] = np.full(specs["position"].shape, start, np.int32)
        piece["last"] = np.full(specs["last"].shape, tokens - 1, np.int32)
        piece["length"] = np.full(specs["length"].shape, given["length"], np.int32)  # caches may be shorter, as rings
        results = side.run("prefill", piece)
    expected = logits_of(one_pass.prefill, EagerExecutionContext(references.weights))
    return compared(place, IN_PIECES, {_LOGITS: results[_LOGITS]}, expected, dtype, exact, rounded)


def check_interpreter(
    entry_points: Sequence[EntryPoint],
    references: References,
    weights: WeightSource,
    dtype: str,
    staging: Path,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Runs every entry point in StableHLO's reference interpreter and compares with the eager context."""
    rows: list[dict[str, Any]] = []
    text = staging / "interpreter.mlir"
    points = {entry_point.name: entry_point for entry_point in entry_points}
    for name, inputs, expected in announced(references, "the interpreter", progress):
        with text_file(text) as file:
            lowered = lower_module([points[name]], file.write, ArgumentParameters())
        parameters = [weights.read(path).astype(spec.dtype.numpy) for path, spec in lowered.parameters().items()]
        results = dict(zip(expected, interpret(text, [*inputs.values(), *parameters]), strict=True))
        try:
            results, wanted = references.unpacked(results), references.unpacked(expected)
            exact = no_results if references.kv_cache is None else references.exact
            rows += compared("interpreter", name, results, wanted, dtype, exact, references.rounded)
        except VerificationError as error:
            raise _located(error, references, name, InterpreterRunner(weights), dtype, progress) from None
    text.unlink()
    return rows


def _located(
    error: VerificationError, references: References, name: str, runner: Runner, dtype: str, progress: Progress
) -> VerificationError:
    """Returns the error, which names the first tensor inside that differs."""
    progress(ProgressEvent("looking for the first divergence ..."))
    inputs, _ = references.of(name)
    reference = EagerReference(references.entry_points[name], references.weights)
    try:
        divergence = locate(references.lowered[name], inputs, runner, reference, TOLERANCE[dtype]).divergence()
    except TapelineError as refused:
        divergence = f"the first divergence could not be looked for: {refused}"
    return VerificationError(f"{error}; {divergence or _NOTHING_FOUND}")


def one_of_each_kind(entry_points: Sequence[EntryPoint]) -> list[EntryPoint]:
    """Returns the first of entry points that differ in their size alone: ``decode`` of it, ``decode_1`` and others.

    Where every call gives a token the same bits (``Invariance.CALLS``), the others compute what these do.
    """
    first: dict[str, EntryPoint] = {}
    for point in entry_points:
        first.setdefault(_SIZE.sub("", point.name), point)
    return list(first.values())


def devices_of(targets: Sequence[str]) -> list[str]:
    """Returns one device per target that a check should run on."""
    seen: dict[str, str] = {}
    for device in DEVICES:
        target = target_of_device(device)
        if target in targets:
            seen.setdefault(target, device)
    return list(seen.values())
