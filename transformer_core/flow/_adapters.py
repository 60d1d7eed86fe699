"""LoRA adapters of the sequences of a call: tables of their matrices among the arguments."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from lang_core import Argument, ExecutionContext, Module, OpError, Repeated, Tensor, TensorSpec
from transformer_core._names import ADAPTER_TABLES
from transformer_core.flow._profile import CompileProfile
from transformer_core.layers._linear import Linear, VocabularyLinear
from transformer_core.layers._low_rank import LowRankDelta

RANK_LANES: Final = 32
"""Number of which the columns of B in tables are a multiple: kernels of products take as many at a time."""


@dataclass(frozen=True, slots=True)
class AdaptedLinear:
    """Linear layers of one name and size in the layers of a model; an adapter has one table of all their matrices.

    Attributes:
        name: name of the layer below a repeated one, such as ``self_attn.q_proj``; with sizes if several have it.
        inputs: number of inputs.
        outputs: number of outputs.
        layers: number of its place in the table, by the path of the linear layer.
    """

    name: str
    inputs: int
    outputs: int
    layers: Mapping[str, int]

    def specs(self, row: int, profile: CompileProfile) -> dict[str, TensorSpec]:
        """Returns specs of a sequence's tables by name: [layers, R, in] and [layers, out, R'], R' a multiple of 32."""
        layers, rank = len(self.layers), profile.adapter_rank or 0
        width, name = -(-rank // RANK_LANES) * RANK_LANES, f"{ADAPTER_TABLES}{row}.{self.name}"
        return {
            f"{name}.a": TensorSpec((layers, rank, self.inputs), profile.dtype),
            f"{name}.b": TensorSpec((layers, self.outputs, width), profile.dtype),
        }


def adapted_linears(root: Module) -> tuple[AdaptedLinear, ...]:
    """Returns the linear layers that adapters may change: those of repeated layers, in the order of the tree.

    Layers with weights that code outside of them computes with are left out, and so are experts.
    """
    kinds: dict[tuple[str, int, int], dict[str, int]] = {}
    for layer in _repeated(root):
        for linear in _linears(layer):
            outputs, inputs = linear.weight.spec.shape
            name = linear.path.removeprefix(f"{layer.path}.")
            layers = kinds.setdefault((name, inputs, outputs), {})
            layers[linear.path] = len(layers)
    names = [name for name, *_ in kinds]
    return tuple(
        AdaptedLinear(name if names.count(name) == 1 else f"{name}.{inputs}x{outputs}", inputs, outputs, layers)
        for (name, inputs, outputs), layers in kinds.items()
    )


def adapter_arguments(linears: Sequence[AdaptedLinear], profile: CompileProfile) -> list[Argument]:
    """Returns the tables of each sequence's adapter; none if the profile has no adapters."""
    if profile.adapter_rank is None:
        return []
    rows = range(profile.batch)
    specs = {name: spec for row in rows for linear in linears for name, spec in linear.specs(row, profile).items()}
    return [Argument(name, spec) for name, spec in specs.items()]


class RunAdapters:
    """Adapters of one run.

    Args:
        ctx: context that computes.
        linears: linear layers that adapters may change.
        tensors: the tensors of ``adapter_arguments``, by name.
        profile: profile of the entry point.
    """

    def __init__(
        self,
        ctx: ExecutionContext,
        linears: Sequence[AdaptedLinear],
        tensors: Mapping[str, Tensor],
        profile: CompileProfile,
    ) -> None:
        self._ctx: Final = ctx
        self._tables: Final = {
            path: (place, [[tensors[name] for name in linear.specs(row, profile)] for row in range(profile.batch)])
            for linear in linears
            for path, place in linear.layers.items()
        }

    def deltas(self, layer: Module) -> dict[str, LowRankDelta]:
        """Returns the changes of a repeated layer's linear layers by path; called outside of the layer's block."""
        deltas = {}
        for linear in _linears(layer):
            place, tables = self._tables[linear.path]
            right, left = zip(*[[self._part(table, place) for table in row] for row in tables], strict=True)
            deltas[linear.path] = LowRankDelta(right, left)
        return deltas

    def _part(self, table: Tensor, place: int) -> Tensor:
        """Returns the matrix of one layer of a table."""
        ops = self._ctx.ops
        return ops.reshape(ops.slice_axis(table, 0, place, place + 1), table.shape[1:])


@contextmanager
def adding(layer: Module, deltas: Mapping[str, LowRankDelta]) -> Iterator[None]:
    """Has a repeated layer's linear layers add changes for the block. The layer is used for this run alone.

    Raises:
        OpError: code computes with a weight outside of its layer, which would leave the change out.
    """
    linears = [linear for linear in _linears(layer) if linear.path in deltas]
    for linear in linears:
        linear.take_delta(deltas[linear.path])
    yield
    for linear in linears:
        if not linear.adds_delta:
            raise OpError(
                f"{linear.path}: adapters change this layer, and the model computes with its weight elsewhere: export "
                f"without adapters"
            )


def _repeated(module: Module) -> Iterator[Module]:
    """Yields the layers of the outermost repetitions of a tree."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, Repeated):
            yield from value
            continue
        for child in value if isinstance(value, list | tuple) else (value,):
            if isinstance(child, Module):
                yield from _repeated(child)


def _linears(module: Module) -> Iterator[Linear]:
    """Yields the linear layers of a repeated layer that adapters may change."""
    if isinstance(module, Linear):
        if module.packable and not isinstance(module, VocabularyLinear):
            yield module
        return
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        for child in value if isinstance(value, list | tuple | Repeated) else (value,):
            if isinstance(child, Module):
                yield from _linears(child)
