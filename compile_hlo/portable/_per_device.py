"""Programs of one device, with explicit collectives, by the passes of Shardy in jaxlib; see ``_child.py``.

jaxlib aborts on unsupported modules, so this runs in a child process only.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

from compile_hlo.portable._stablehlo import new_context, parsed, visibility
from lang_core import Axes, MeshShape, VerificationError

_MAIN: Final = "main"  # the name by which the passes look the function up
_MESH: Final = "mesh"
# Without the full version of explicit reshards the next pass aborts.
_RESHARDS: Final = (
    "builtin.module(sdy-propagation-pipeline,func.func(sdy-insert-explicit-reshards{enable-full-version}),"
    "func.func(sdy-reshard-to-collectives))"
)
_LOCAL: Final = "builtin.module(sdy-convert-global-to-local,sdy-drop-sharding-and-mesh)"
# Ops whose results on several devices add up to the whole.
_SUMS: Final = ("stablehlo.dot_general", "stablehlo.convolution")


def write_per_device(
    text: Path, output: Path, mesh: MeshShape, axes: Mapping[str, tuple[Sequence[Axes], Sequence[Axes]]]
) -> dict[str, list[int]]:
    """See ``_child.write_per_device``."""
    context = new_context()
    sdy.register_dialect(context)
    whole: dict[str, list[int]] = {}
    functions: list[str] = []
    for name, (arguments, results) in axes.items():
        cut, whole[name] = _cut(_alone(text, context, name), context, mesh, arguments, results)
        functions.append(_lowered(cut, context, name, output))
    output.write_text(_module(functions, context, mesh))
    return whole


def _alone(text: Path, context: Any, name: str) -> Any:
    """Returns the module of one function, called ``main``, with its callees inlined."""
    module = parsed(text, context)
    with context, ir.Location.unknown():
        functions = {_name(function): function for function in module.body.operations}
        if name not in functions:
            raise VerificationError(f"{text}: function {name!r} not found; available: {', '.join(functions)}")
        _inline(functions[name], functions, set())
        for function in functions.values():
            if _name(function) != name:
                function.operation.erase()
        functions[name].attributes["sym_name"] = ir.StringAttr.get(_MAIN)
    return module


def _inline(function: Any, functions: Mapping[str, Any], done: set[str]) -> None:
    """Replaces the calls of a function by the bodies of the called ones. MLIR's own pass leaves them."""
    if _name(function) in done:
        return
    done.add(_name(function))
    for operation in list(_operations(function.regions[0].blocks[0])):
        if operation.name != "func.call":
            continue
        callee = functions[ir.FlatSymbolRefAttr(operation.attributes["callee"]).value]
        _inline(callee, functions, done)
        with ir.InsertionPoint(operation):
            results = _jax_mlir_ext.inlined_func_call(callee.operation, list(operation.operands))
        for old, new in zip(operation.results, results, strict=True):
            old.replace_all_uses_with(new)
        operation.erase()


def _operations(block: Any) -> Iterator[Any]:
    """Yields the operations of a block, and of the regions in it."""
    for view in list(block.operations):
        for region in view.operation.regions:
            for inner in region.blocks:
                yield from _operations(inner)
        yield view.operation


def _cut(
    module: Any, context: Any, mesh: MeshShape, arguments: Sequence[Axes], results: Sequence[Axes]
) -> tuple[str, list[int]]:
    """Returns the text of a module with shardings, and the numbers of arguments that stay whole."""
    with context, ir.Location.unknown():
        function = module.body.operations[0]
        whole = _searched(function, arguments)
        given = [(None,) * len(axes) if i in whole else axes for i, axes in enumerate(arguments)]
        before = function.attributes["arg_attrs"] if "arg_attrs" in function.attributes else [{}] * len(given)
        sizes = ", ".join(f'"{axis}"={size}' for axis, size in mesh)
        declared = ir.Module.parse(f"sdy.mesh @{_MESH} = <[{sizes}]>").body.operations[0]
        declared.operation.clone(ip=ir.InsertionPoint.at_block_begin(module.body))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [_with_sharding(old, axes, mesh) for old, axes in zip(before, given, strict=True)]
        )
        _keep_lines_whole(function)
        function.attributes["res_attrs"] = ir.ArrayAttr.get([_with_sharding({}, axes, mesh) for axes in results])
        return str(module), whole


def _searched(function: Any, arguments: Sequence[Axes]) -> list[int]:
    """Returns the numbers of arguments that a gather searches along a dimension that is cut, such as embeddings.

    The passes abort on these: a device may look up values that lie on another device.
    """
    block = function.regions[0].blocks[0]
    whole: set[int] = set()
    for operation in _operations(block):
        if operation.name == "stablehlo.gather":
            searched = stablehlo.GatherDimensionNumbers(operation.attributes["dimension_numbers"]).start_index_map
            for i, argument in enumerate(block.arguments):
                if argument == operation.operands[0] and any(arguments[i][dim] for dim in searched):
                    whole.add(i)
    return sorted(whole)


def _keep_lines_whole(function: Any) -> None:
    """Keeps operands of reductions other than sums whole along the reduced dimensions.

    An all-reduce of Shardy's lacks a kind: the passes make each one a sum, also maxima and minima.
    """
    for operation in list(_operations(function.regions[0].blocks[0])):
        if operation.name != "stablehlo.reduce" or _is_sum(operation):
            continue
        reduced = set(ir.DenseI64ArrayAttr(operation.attributes["dimensions"]))
        for value in list(operation.operands)[: len(operation.operands) // 2]:
            _keep_whole(value, reduced)


def _keep_whole(value: Any, dimensions: Collection[int]) -> None:
    """Gives a value and all that use it a sharding that leaves dimensions whole, so that it is gathered once."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        point = ir.InsertionPoint.at_block_begin(owner)
    elif owner.name == "sdy.sharding_constraint":
        return
    else:
        point = ir.InsertionPoint.after(owner)
    dims = ", ".join("{}" if dim in dimensions else "{?}" for dim in range(ir.ShapedType(value.type).rank))
    kept = sdy.ShardingConstraintOp(value, ir.Attribute.parse(f"#sdy.sharding<@{_MESH}, [{dims}]>"), ip=point)
    value.replace_all_uses_except(kept.result, kept.operation)


def _is_sum(operation: Any) -> bool:
    if operation.name != "stablehlo.reduce":
        return operation.name in _SUMS
    return [inner.name for inner in _operations(operation.regions[0].blocks[0])] == [
        "stablehlo.add",
        "stablehlo.return",
    ]


def _check_sums(module: Any, name: str, output: Path) -> None:
    """Refuses an all-reduce of anything but a sum, which would become one."""
    for function in module.body.operations:
        for region in function.operation.regions:
            for operation in (inner for block in region.blocks for inner in _operations(block)):
                if operation.name == "sdy.all_reduce" and not _is_sum(operation.operands[0].owner):
                    raise VerificationError(
                        f"{output}: {name!r} has an all-reduce of {operation.operands[0].owner.name}, which the passes "
                        f"would make a sum"
                    )


def _with_sharding(before: Any, axes: Axes, mesh: MeshShape) -> Any:
    """Returns the attributes of an argument or a result with its axes."""
    dims = ", ".join("{}" if axis is None else f"{{{_named(axis, mesh)}}}" for axis in axes)
    kept = {item.name: item.attr for item in before}
    return ir.DictAttr.get({**kept, "sdy.sharding": ir.Attribute.parse(f"#sdy.sharding<@{_MESH}, [{dims}]>")})


def _named(axis: str, mesh: MeshShape) -> str:
    """Returns an axis in Shardy's words, in which part of one is its first devices' (1) and their number."""
    whole = mesh.axis_of(axis)
    return f'"{whole}"' if mesh.size_of(axis) == mesh.size_of(whole) else f'"{whole}":(1){mesh.size_of(axis)}'


def _lowered(text: str, context: Any, name: str, output: Path) -> str:
    """Returns the text of the function of one device.

    Python references to parts of a module must not outlive the passes.
    """
    with context, ir.Location.unknown():
        module = _passed(text, _RESHARDS, name, output)
        _check_sums(module, name, output)
        module = _passed(str(module), _LOCAL, name, output)
        for function in module.body.operations:
            if visibility(function) == "public":
                function.attributes["sym_name"] = ir.StringAttr.get(name)
        return str(module)


def _passed(text: str, passes: str, name: str, output: Path) -> Any:
    """Returns the module of a text after passes."""
    module = ir.Module.parse(text)
    try:
        PassManager.parse(passes).run(module.operation)
    except ir.MLIRError as error:
        raise VerificationError(f"{output}: {name!r} cannot be written for one device: {error}") from None
    return module


def _module(functions: Sequence[str], context: Any, mesh: MeshShape) -> str:
    """Returns the text of one module with the functions of several."""
    with context, ir.Location.unknown():
        whole = ir.Module.create()
        number = ir.IntegerType.get_signless(32)
        whole.operation.attributes["sym_name"] = ir.StringAttr.get("tapeline")
        whole.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(number, mesh.size)
        whole.operation.attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(number, 1)
        for text in functions:
            for function in ir.Module.parse(text).body.operations:
                function.operation.clone(ip=ir.InsertionPoint(whole.body))
        whole.operation.verify()
        return f"{whole}\n"


def _name(function: Any) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value
