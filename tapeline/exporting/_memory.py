"""Estimates of the memory that the phases of an export need.

The constants were measured (docs/benchmarks.md) and are meant to lie above the use, by less than the use itself.
Reports show the estimate beside the measured peak.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from compile_hlo import LoweredModule
from lang_core import EntryPoint, TensorSpec, WeightSource
from tapeline.exporting._options import ExportOptions
from transformer_core.checkpoints import PackedWeights

_MIB: Final = 1 << 20

# The rows of weights that are read at a time; less if the budget is small.
CHUNK_BYTES: Final = 8 * _MIB
_LEAST_CHUNK_BYTES: Final = _MIB // 4

# Times the f32 bytes of packed rows that unpacking them holds: groups of rows, all of them, and in the model's order.
_UNPACKING: Final = 3
_KEPT: Final = 256 * _MIB

# While rows are quantised: 4 MiB of them in f32, what is computed of some of their blocks, NumPy's buffers, and what
# the allocator keeps of those.
_PACKING: Final = 14 * _MIB

# Bytes of sessions, threads and buffers of BLAS; and how many arrays of a kind there are at once, at most.
_SESSION: Final = 12 * _MIB
_ACTIVATIONS: Final = 12
_SCORES: Final = 4
_OUTPUTS: Final = 4

# Copies of one entry point's caches at once, if those of the other entry points are not kept.
_CACHES: Final = 5


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """Sizes that the activations of a model depend on.

    Attributes:
        tokens: B times S, the tokens of one call.
        positions: T, positions that a token may attend to.
        heads: H, of attention; 0 if the model lacks it.
        vocabulary: V; 0 for a model without token inputs.
    """

    tokens: int
    positions: int
    heads: int
    vocabulary: int

    @property
    def score_bytes(self) -> int:
        """Bytes of one layer's scores of attention in f32."""
        return 4 * self.tokens * self.heads * self.positions

    def activation_bytes(self, parameters: Iterable[TensorSpec]) -> int:
        """Returns the bytes of the widest activations in f32.

        Tables with a row per token of the vocabulary are left out: a lookup gives the rows of a few tokens, and a
        product with all rows is a result.
        """
        matrices = (spec.shape[-2:] for spec in parameters if spec.ndim >= 2)
        return 4 * self.tokens * max((max(shape) for shape in matrices if self.vocabulary not in shape), default=1)


def chunk_bytes(budget: int | None) -> int:
    """The rows of weights to read at a time: a hundredth of the budget, within reason."""
    return CHUNK_BYTES if budget is None else min(CHUNK_BYTES, max(_LEAST_CHUNK_BYTES, budget // 100))


def lowering_memory(options: ExportOptions, nodes: int) -> int:
    """Anonymous bytes while the module's text is made of so many recorded nodes."""
    kept = 2048 * nodes if options.lowering == "buffered" else 96 * nodes
    inline = 4 * chunk_bytes(options.max_memory) if options.weights == "inline" else 0
    return 4 * _MIB + kept + inline


def weights_memory(options: ExportOptions, lowered: LoweredModule, weights: WeightSource | None) -> int:
    """Anonymous bytes while the archive is written."""
    if options.weights != "external":
        return 0
    chunk = chunk_bytes(options.max_memory)
    unpacked = 0
    if weights is not None:
        rows = (_row_bytes(spec) for path, spec in lowered.parameters().items() if weights.encoding(path) is not None)
        unpacked = max((_UNPACKING * max(chunk, row) for row in rows), default=0)
    if isinstance(weights, PackedWeights):
        # Blocks that the bundle takes over byte for byte are copied as the bytes that they are.
        made = [path for path in lowered.parameters() if weights.packing(path) is not None and not weights.kept(path)]
        unpacked += _PACKING if made else 0
        unpacked += _UNPACKING * 4 * _MIB if any(map(weights.stored_encoding, made)) else 0
    return 6 * _MIB + chunk + unpacked


def _row_bytes(spec: TensorSpec) -> int:
    """One row in f32: the least that is unpacked at a time."""
    return 4 * spec.shape[-1] if spec.ndim > 1 else 4 * spec.size


def compiler_memory(target: str, nodes: int, module_bytes: int) -> int:
    """Resident bytes of the compiler, for so many emitted nodes, block functions counted at each call.

    Blocks stay functions on llvm-cpu, so its memory does not grow with their calls; elsewhere they are inlined.
    """
    return _COMPILER_BASE[target] + _PER_NODE[target] * nodes + 3 * module_bytes


# Those of GPUs are older than the blocks that stay functions, and are above the use.
_COMPILER_BASE: Final = {"llvm-cpu": 158 * _MIB, "vmvx": 158 * _MIB, "vulkan-spirv": 330 * _MIB, "cuda": 270 * _MIB}
_VERIFIER_BASE: Final = 156 * _MIB
# Times the bytes of its arguments that the interpreter holds: as it got them, as constants, and as its own tensors.
_INTERPRETED: Final = 3.5
_PER_NODE: Final = {"llvm-cpu": 0, "vmvx": 100_000, "vulkan-spirv": 650_000, "cuda": 650_000}


def stablehlo_memory(module_bytes: int) -> int:
    """Resident bytes of the process that runs StableHLO's verifier: nearly all are the pages of jaxlib."""
    return _VERIFIER_BASE + 3 * module_bytes


def interpreter_memory(module_bytes: int, points: Iterable[EntryPoint], lowered: LoweredModule) -> int:
    """Resident bytes of the process that runs StableHLO's reference interpreter, with one entry point at a time."""
    specs = ([argument.spec for argument in point.arguments] for point in points)
    inputs = max((sum(spec.nbytes for spec in of_point) for of_point in specs), default=0)
    arrays = _parameter_bytes(lowered) + inputs
    return stablehlo_memory(module_bytes) + int(_INTERPRETED * arrays)


def verification_memory(
    options: ExportOptions,
    model: VerifiedModel,
    points: tuple[EntryPoint, ...],
    lowered: LoweredModule,
    weights: WeightSource | None,
) -> int:
    """Anonymous bytes while results are compared.

    They are the caches (see ``_cache_bytes``); the weights that are kept unpacked, and one that is being unpacked; the
    activations and the scores of attention of the layer that runs, in the eager context and on the device; and the
    results other than caches, with the differences from their reference.
    """
    if weights is None or options.verify in ("none", "parse"):
        return 4 * _MIB
    parameters = dict(lowered.parameters().items())
    widened = max(_widened_bytes(spec, weights, path) for path, spec in parameters.items())
    updates = {(point.name, a.alias_result) for point in points for a in point.arguments if a.alias_result is not None}
    results = {(f.name, name): spec.nbytes for f in lowered.functions for name, spec in f.results.items()}
    others = [size for key, size in results.items() if key not in updates]
    copies = sum(spec.nbytes for spec in parameters.values()) if "vulkan-spirv" in options.target else 0
    kept = kept_bytes(options, lowered, weights)
    if options.verify == "interpreter":  # it gets all weights as arguments; the one that is written is copied twice
        largest = max((spec.nbytes for spec in parameters.values()), default=0)
        widened = max(widened, _parameter_bytes(lowered) + 2 * largest)
    own = _SESSION + _ACTIVATIONS * model.activation_bytes(parameters.values()) + _SCORES * model.score_bytes
    return own + kept + widened + _cache_bytes(points) + sum(others) + _OUTPUTS * max(others, default=0) + copies


def _parameter_bytes(lowered: LoweredModule) -> int:
    return sum(spec.nbytes for _, spec in lowered.parameters().items())


def keeps_calls(points: Iterable[EntryPoint]) -> bool:
    """Returns whether verification keeps inputs and results of all entry points for further devices.

    It does not if the caches have rows for a server: they are large, and there are many entry points.
    """
    return not {"row", "pages"}.intersection(argument.name for point in points for argument in point.arguments)


def _cache_bytes(points: tuple[EntryPoint, ...]) -> int:
    """Returns the bytes of caches that verification holds at once.

    If it keeps all calls, these are the arguments and results of every entry point. Otherwise they are those of the
    largest entry point: its arguments and results, those of the device, and the results of the call before.
    """
    sizes = [sum(a.spec.nbytes for a in point.arguments if a.alias_result is not None) for point in points]
    return 2 * sum(sizes) if keeps_calls(points) else _CACHES * max(sizes, default=0)


def kept_bytes(options: ExportOptions, lowered: LoweredModule, weights: WeightSource | None) -> int:
    """Returns the bytes of weights that verification keeps, so that packed ones are unpacked once for all entry points.

    Nothing is kept if nothing is packed, or if there is a budget of memory.
    """
    parameters = lowered.parameters()
    if weights is None or options.max_memory is not None or not any(map(weights.encoding, parameters)):
        return 0
    return min(_KEPT, sum(4 * spec.size for spec in parameters.values()))


def _widened_bytes(spec: TensorSpec, weights: WeightSource, path: str) -> int:
    """Returns the bytes that the eager context copies of a weight: of another dtype, multiplied in f32, or packed.

    Packed weights are unpacked for the f32 results of the same weights.
    """
    if isinstance(weights, PackedWeights) and weights.packing(path) is not None:
        made = 0 if weights.kept(path) else weights.spec(path).nbytes + _PACKING
        return made + 4 * weights.unpacked_spec(path).size
    copied = (
        4 * spec.size if spec.dtype.itemsize == 2 else spec.nbytes if weights.spec(path).dtype is not spec.dtype else 0
    )
    return copied + (_UNPACKING * 4 * spec.size if weights.encoding(path) is not None else 0)
