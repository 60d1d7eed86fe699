"""Axes of the arguments and results of entry points."""

from collections.abc import Iterable, Sequence

from lang_core import Argument, Axes, ConfigError, EntryPoint, MeshShape, TensorSpec


def cache_axes(points: Iterable[EntryPoint], mesh: MeshShape) -> dict[str, Axes]:
    """Returns per cache, state or other kept tensor of entry points the axis that cuts each of its dimensions.

    Layers say which axes may cut a cache (``CacheLayout.axes``). Fewer heads of keys and values than devices are cut by
    part of the axis, so that groups of devices hold one; sizes that an axis does not divide, such as one latent, are
    replicated.
    """
    return {
        argument.name: _fitting(argument, argument.axes, mesh)
        for point in points
        for argument in point.arguments
        if argument.axes is not None
    }


def argument_axes(point: EntryPoint, mesh: MeshShape, batch: int) -> dict[str, Axes]:
    """Returns per argument of an entry point the axis that cuts each of its dimensions.

    Args:
        point: the entry point.
        mesh: the mesh.
        batch: B; arguments with a row per sequence are cut by ``dp``, unless the argument overrides it.

    Raises:
        ConfigError: ``dp`` does not divide B.
    """
    _check_batch(mesh, batch)
    kept = cache_axes((point,), mesh)
    return {a.name: kept.get(a.name) or _by_sequence(a.spec.shape, mesh, batch) for a in point.arguments}


def result_axes(
    results: Sequence[tuple[str, TensorSpec]], points: Iterable[EntryPoint], mesh: MeshShape, batch: int
) -> dict[str, Axes]:
    """Returns per result of an entry point the axis that cuts each of its dimensions.

    A result that is another call's cache lies as that does. Others are whole along every dimension but the sequences.

    Args:
        results: names and specs.
        points: all entry points of the model.
        mesh: the mesh.
        batch: B.
    """
    kept = cache_axes(points, mesh)
    return {name: kept.get(name) or _by_sequence(spec.shape, mesh, batch) for name, spec in results}


def _by_sequence(shape: Sequence[int], mesh: MeshShape, batch: int) -> Axes:
    cut = bool(shape) and shape[0] == batch and "dp" in mesh.names
    return tuple("dp" if cut and i == 0 else None for i in range(len(shape)))


def _fitting(argument: Argument, axes: Axes, mesh: MeshShape) -> Axes:
    """Returns the axes, or parts of them, that the mesh has and that divide their dimensions."""
    pairs = zip(axes, argument.spec.shape, strict=True)
    return tuple(None if axis is None or axis not in mesh.names else _part(mesh, axis, size) for axis, size in pairs)


def _part(mesh: MeshShape, axis: str, extent: int) -> str | None:
    return mesh.part_of(axis, extent) if extent % mesh.size_of(axis) else axis


def _check_batch(mesh: MeshShape, batch: int) -> None:
    size = mesh.size_of("dp")
    if batch % size:
        raise ConfigError(
            f"mesh {mesh}: batch={batch} sequences cannot be divided among dp={size}; batch may be {size}, {2 * size}, "
            f"..."
        )
