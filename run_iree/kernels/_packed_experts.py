"""Products with packed weights of stacked experts: the kernel of a product, on the weight of the chosen expert.

Each group of rows of x has workgroups of its own. They look up the group's expert and see of each buffer the part that
belongs to the group: the body is that of a product with one weight, whichever kernel that has.
"""

from dataclasses import replace

from compile_hlo.directions import KernelSignature
from lang_core import TensorSpec, as_dtype
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import CpuKernel


def product_of_one_expert(function: KernelSignature) -> KernelSignature:
    """Returns the record of the product that each group of rows is: ``packed_linear`` with one expert's weight."""
    *x, _, weight = function.arguments
    arguments = [replace(argument, spec=_one(argument.spec)) for argument in (*x, weight)]
    results = [replace(result, spec=_one(result.spec)) for result in function.results]
    return replace(function, kind="packed_linear", arguments=tuple(arguments), results=tuple(results))


def expert_kernel(kernel: CpuKernel, function: KernelSignature) -> CpuKernel:
    """Builds the kernel of a product with stacked experts.

    Args:
        kernel: kernel of ``product_of_one_expert``. Its buffers are its parts of x, w and y.
        function: planes i8 [X, R, P, K], scale f32 and total i32 [X, R, K / 32], expert i32 [G], w i8 [E, N, bytes]:
            y [G, R, N].
    """
    given, experts = function.arguments[0].spec.shape[0], function.arguments[-1].spec.shape[0]
    groups = function.results[0].spec.shape[0]
    *x, w, y = kernel.buffers
    before = [
        "%group_workgroup = stream.dispatch.workgroup.id[0] : index",
        f"%group_workgroups = arith.constant {kernel.workgroups} : index",
        "%group_y = arith.divui %group_workgroup, %group_workgroups : index",
        "%workgroup = arith.remui %group_workgroup, %group_workgroups : index",
        f"%group_sharing = arith.constant {groups // given} : index",
        "%group_x = arith.divui %group_y, %group_sharing : index",
        f"%group_chosen = memref.load %expert[%group_y] : memref<{groups}xi32>",
        "%group_least = arith.constant 0 : i32",
        f"%group_most = arith.constant {experts - 1} : i32",
        "%group_above = arith.maxsi %group_chosen, %group_least : i32",
        "%group_expert = arith.minsi %group_above, %group_most : i32",
        "%group_w = arith.index_cast %group_expert : i32 to index",
    ]
    offsets: dict[str, str] = {}
    for buffer, place in [*((part, "%group_x") for part in x), (w, "%group_w"), (y, "%group_y")]:
        offsets[buffer.name] = f"%group_begin_{buffer.name}"
        before += [
            f"%group_bytes_{buffer.name} = arith.constant {buffer.elements * as_dtype(buffer.kind).itemsize} : index",
            f"{offsets[buffer.name]} = arith.muli {place}, %group_bytes_{buffer.name} : index",
        ]
    return replace(
        kernel,
        buffers=(*x, Buffer("expert", groups, "i32"), w, y),
        workgroups=groups * kernel.workgroups,
        before=tuple(before),
        offsets=offsets,
    )


def _one(spec: TensorSpec) -> TensorSpec:
    """Returns the spec of one element of the first axis."""
    return TensorSpec(spec.shape[1:], spec.dtype)
