"""Sharding of a model: its rules on a mesh of given sizes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import Axes, ConfigError, MeshShape, Module, Parameter, TensorSpec, any_of
from transformer_core.layers._moe import Experts
from transformer_core.sharding._cut import Cut, cuts_in

_MOST_SIZES: Final = 8  # that a message lists


@dataclass(frozen=True, slots=True)
class Sharding:
    """Axes of a model's parameters on a mesh.

    Attributes:
        parameters: per path the axis that cuts each dimension, of packed weights those of the packed bytes.
        notes: sentences on tensors that are replicated although a rule cuts them.
    """

    parameters: dict[str, Axes]
    notes: tuple[str, ...]


def sharding(model: Module, mesh: MeshShape) -> Sharding:
    """Returns how a model's parameters lie on a mesh, by the rules of its layers.

    Raises:
        ConfigError: an axis divides something that has to stay whole, or cuts nothing of this model.
    """
    cuts = cuts_in(model)
    _check(mesh, [cut for of_parameter in cuts.values() for cut in of_parameter])
    parameters: dict[str, Axes] = {}
    reasons: dict[str, list[str]] = {}
    for path, parameter in model.named_parameters():
        axes: list[str | None] = [None] * len(parameter.spec.shape)
        for cut in cuts.get(path, ()):
            axis, reason = _placed(cut, parameter, mesh)
            if reason is not None:
                reasons.setdefault(reason, []).append(path)
            if cut.axis in mesh.names:
                axes[cut.dimension] = axis
        parameters[path] = tuple(axes)
    return Sharding(parameters, tuple(_note(reason, paths) for reason, paths in reasons.items()))


def divide_experts(model: Module, mesh: MeshShape) -> None:
    """Makes mixtures of experts compute by groups of them, of which devices along ``ep`` hold one each.

    Args:
        model: model that is changed; layers that are made later too.
        mesh: the mesh; without ``ep`` all experts are one group.
    """
    groups = mesh.size_of("ep")

    def divide(module: Module) -> None:
        if isinstance(module, Experts):
            module.groups = groups

    model.visit(divide)


def parameter_axes(model: Module, mesh: MeshShape) -> dict[str, Axes]:
    """Returns per parameter the axis that cuts each of its dimensions, None if nothing does; see ``sharding``."""
    return sharding(model, mesh).parameters


def fsdp_axes(
    specs: Mapping[str, TensorSpec], mesh: MeshShape, axes: Mapping[str, Axes] | None = None
) -> dict[str, Axes]:
    """Returns axes of parameters for training, with the greatest divisible dimension cut by ``fsdp``.

    Args:
        specs: parameters by path.
        mesh: the mesh; without ``fsdp`` nothing is added.
        axes: other axes that cut parameters already; a dimension is cut once.

    >>> fsdp_axes({"w": TensorSpec((6, 8), "f32"), "b": TensorSpec((3,), "f32")}, MeshShape.parse("fsdp=2"))
    {'w': (None, 'fsdp'), 'b': (None,)}
    """
    made: dict[str, Axes] = {}
    for path, spec in specs.items():
        whole: Axes = (None,) * len(spec.shape)
        before = whole if axes is None else axes.get(path, whole)
        free = [i for i, axis in enumerate(before) if axis is None and spec.shape[i] % mesh.size_of("fsdp") == 0]
        greatest = max(free, key=lambda i: spec.shape[i], default=None)
        cut = "fsdp" in mesh.names and greatest is not None
        made[path] = tuple("fsdp" if cut and i == greatest else axis for i, axis in enumerate(before))
    return made


def _placed(cut: Cut, parameter: Parameter, mesh: MeshShape) -> tuple[str | None, str | None]:
    """Returns the axis that makes a cut, None if it cannot, and the reason if it is not all of the axis."""
    size = mesh.size_of(cut.axis)
    if cut.units % size:
        part = mesh.part_of(cut.axis, cut.units) if cut.shared else None
        if part is None:
            return None, f"{cut.units} {cut.unit}, which {cut.axis}={size} does not divide: replicated"
        group = size // cut.units
        return part, f"{cut.units} {cut.unit} for {cut.axis}={size}: replicated in groups of {group} devices"
    encoding, last = parameter.encoding, len(parameter.spec.shape) - 1
    if encoding is not None and cut.dimension == last:
        blocks = parameter.spec.shape[last] // encoding.block
        if blocks % size:
            return (
                None,
                f"rows of {blocks} blocks of {encoding.name}, which {cut.axis}={size} does not divide: replicated",
            )
    return cut.axis, None


def _note(reason: str, paths: Sequence[str]) -> str:
    which = f"{paths[0]} has" if len(paths) == 1 else f"{len(paths)} parameters such as {paths[0]} have"
    return f"{which} {reason}"


def _check(mesh: MeshShape, cuts: Sequence[Cut]) -> None:
    """Refuses sizes of axes that divide dimensions that must stay whole."""
    for axis, size in mesh:
        own = [cut for cut in cuts if cut.axis == axis]
        if not own and axis in _CUTTING and size > 1:
            raise ConfigError(f"mesh {mesh}: {axis}={size} cuts nothing, for the model has no {_CUTTING[axis]}")
        for cut in own:
            if not _fits(cut, size):
                raise ConfigError(
                    f"mesh {mesh}: {cut.parameter.path} has {cut.units} {cut.unit}, which {axis}={size} does not "
                    f"divide; {axis} may be {any_of(map(str, _sizes(own)))}"
                )


_CUTTING: Final = {"tp": "heads and features", "ep": "experts"}


def _fits(cut: Cut, size: int) -> bool:
    return cut.units % size == 0 or cut.optional or (cut.shared and size % cut.units == 0)


def _sizes(cuts: Iterable[Cut]) -> list[int]:
    """Returns the least sizes of an axis that all cuts allow."""
    hard = {(cut.units, cut.shared): cut for cut in cuts if not cut.optional}.values()
    most = min(cut.units for cut in hard if not cut.shared)
    return [size for size in range(1, most + 1) if all(_fits(cut, size) for cut in hard)][:_MOST_SIZES]
