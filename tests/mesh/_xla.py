"""Lowered entry points on XLA over virtual devices, by the table of axes."""

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir
from jax.sharding import Mesh
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from compile_hlo import LoweredFunction, lower_module
from compile_hlo.emit import PARTITIONED, ArgumentParameters, Overrides
from lang_core import Axes, EntryPoint, MeshShape, TensorSpec
from run_jax.sessions import Partitions
from transformer_core.sharding import argument_axes, result_axes

jax.config.update("jax_enable_x64", True)  # in f64 a wrong partition is no rounding

_VERSION: Final = "1.9.0"
_COLLECTIVE: Final = re.compile(
    r"= (?:\([^)]*\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
_SHAPED: Final = re.compile(r"= (\w+)\[([\d,]*)\]\S* all-gather(?:-start)?\(")


def mesh_of(shape: MeshShape) -> Mesh:
    """Returns a mesh of the first virtual devices."""
    devices = jax.devices()
    if len(devices) < shape.size:
        raise RuntimeError("set XLA_FLAGS=--xla_force_host_platform_device_count=4 before the process starts")
    return Mesh(np.array(devices[: shape.size]).reshape(list(shape.sizes.values())), shape.names)


class MeshFunction:
    """Entry point, compiled by XLA for a mesh.

    Args:
        point: the entry point.
        mesh: the mesh.
        parameters: axes of the parameters by path.
        batch: B.
        overrides: forms of the text.
        points: other entry points of the model, whose caches its results may be.

    Attributes:
        lowered: its signature and parameters.
        collectives: number of each kind in the compiled text.
        gathered: shapes that all-gathers make.
    """

    def __init__(
        self,
        point: EntryPoint,
        mesh: MeshShape,
        parameters: Mapping[str, Axes],
        batch: int,
        overrides: Overrides = PARTITIONED,
        points: Sequence[EntryPoint] = (),
    ) -> None:
        text: list[str] = []
        self.lowered: LoweredFunction = lower_module(
            [point], text.append, ArgumentParameters(), overrides=overrides
        ).functions[0]
        signature = self.lowered.signature
        named = argument_axes(point, mesh, batch)
        results = [(result.name, result.spec) for result in signature.results]
        of_results = result_axes(results, [point, *points], mesh, batch)
        values = {("", name): axes for name, axes in (named | of_results).items()}
        partitions = Partitions(mesh_of(mesh), parameters, values)
        self.inputs = [partitions.value("", a.name, a.spec) for a in signature.arguments]
        self.inputs += [partitions.parameter(path, spec) for path, spec in self.lowered.parameters.items()]
        outputs = tuple(partitions.value("", name, spec) for name, spec in results)
        taken = [*(argument.spec for argument in signature.arguments), *self.lowered.parameters.values()]
        specs = [jax.ShapeDtypeStruct(spec.shape, spec.dtype.numpy) for spec in taken]
        exported = _exported("".join(text), point.name, specs, [spec for _, spec in results])
        donated = tuple(i for i, argument in enumerate(signature.arguments) if argument.donated)
        jitted = jax.jit(exported.call, in_shardings=self.inputs, out_shardings=outputs, donate_argnums=donated)
        self._compiled = jitted.lower(*specs).compile()
        hlo = str(self._compiled.as_text())
        self.collectives = Counter(_COLLECTIVE.findall(hlo))
        self.gathered = [tuple(map(int, filter(None, dims.split(",")))) for _, dims in _SHAPED.findall(hlo)]

    def __call__(self, arguments: Sequence[Any], weights: Mapping[str, Any]) -> dict[str, Any]:
        """Calls it: arrays of the arguments, then the weights that it reads."""
        arrays = [*arguments, *(weights[path] for path in self.lowered.parameters)]
        placed = [jax.device_put(array, at) for array, at in zip(arrays, self.inputs, strict=True)]
        names = [result.name for result in self.lowered.signature.results]
        return dict(zip(names, self._compiled(*placed), strict=True))


def _exported(
    text: str, name: str, specs: Sequence[jax.ShapeDtypeStruct], results: Sequence[TensorSpec]
) -> jax.export.Exported:
    """Returns a function that ``jax.jit`` can call, whose module is the text."""
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        for operation in module.body.operations:
            if ir.StringAttr(operation.attributes["sym_name"]).value == name:
                operation.attributes["sym_name"] = ir.StringAttr.get("main")
                _drop_aliases(operation)
        blob = stablehlo.serialize_portable_artifact(module, _VERSION)

    def stand_in(*_: Any) -> tuple[Any, ...]:
        return tuple(jnp.zeros(spec.shape, spec.dtype.numpy) for spec in results)

    made = jax.export.export(jax.jit(stand_in, keep_unused=True), platforms=["cpu"])(*specs)
    kept = tuple(range(len(specs)))
    return dataclasses.replace(made, fun_name=name, mlir_module_serialized=blob, module_kept_var_idx=kept)


def _drop_aliases(function: Any) -> None:
    """Drops what the text says of donated arguments: the whole program's donation says it."""
    if "arg_attrs" in function.attributes:
        attributes = function.attributes["arg_attrs"]
        kept = [
            ir.DictAttr.get({item.name: item.attr for item in one if item.name != "tf.aliasing_output"})
            for one in attributes
        ]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)
