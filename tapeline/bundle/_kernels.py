"""Private functions in ``kernel_config.json``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from compile_hlo.directions import Direction, KernelSignature
from lang_core import DescriptionError, TensorSpec
from tapeline.bundle._field_values import spec_of

_NOT_RECORDED: Final = "the version that wrote this bundle did not record it"
_DIRECTIONS: Final = get_args(Direction)


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """Private function: a block of the model, or a helper function that emission rules share.

    Attributes:
        name: symbol in module.mlir.
        call_sites: number of calls in the text.
        signature: effective directions of its tensor arguments in the order of the text, without the scalars after
            them, then OUT for each result. None if it was not recorded.
        reason: why the signature is missing; None if there is one.
        arguments: arguments in the order of the text: ``kind``, ``dtype``, ``shape``, ``direction`` (as declared: INOUT
            if a call site passes a donated argument), ``effective``.
        results: ``direction``, ``dtype``, ``shape``, ``alias_arg`` (number of the argument that it takes over).
        kind: ``block``, or the op or group of ops that a helper function computes.
        attributes: constants of a helper function, by name.
        source: block, or path of the module, of the first call.
    """

    name: str
    call_sites: int
    signature: list[str] | None = None
    reason: str | None = None
    arguments: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    kind: str = "block"
    attributes: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def argument_specs(self) -> list[TensorSpec]:
        """Shape and dtype of the arguments, in order."""
        return [spec_of(entry) for entry in self.arguments]

    @property
    def result_specs(self) -> list[TensorSpec]:
        """Shape and dtype of the results, in order."""
        return [spec_of(entry) for entry in self.results]

    @property
    def effective(self) -> list[str]:
        """Directions that arguments and results have of their own, in the form of ``signature``."""
        tensors = [entry["effective"] for entry in self.arguments if entry["kind"] == "tensor"]
        return tensors + ["OUT"] * len(self.results)


def kernel_record(kernel: KernelSignature) -> KernelRecord:
    """Describes a private function."""
    return KernelRecord(
        kernel.name,
        kernel.call_sites,
        [*kernel.signature, *["OUT"] * len(kernel.results)],
        arguments=[
            {
                "kind": argument.kind,
                **spec_fields(argument.spec),
                "direction": argument.declared,
                "effective": argument.effective,
            }
            for argument in kernel.arguments
        ],
        results=[
            {**spec_fields(result.spec), "direction": result.direction, "alias_arg": result.alias_arg}
            for result in kernel.results
        ],
        kind=kernel.kind,
        attributes=dict(kernel.attributes),
        source=kernel.source,
    )


def read_kernels(entries: Sequence[Mapping[str, Any]], schema: int) -> list[KernelRecord]:
    """Reads private functions; schema 1 has signatures without results.

    Raises:
        DescriptionError: a kernel contradicts itself, or is there twice.
        TypeError: a field is damaged; also KeyError or TapelineError.
    """
    kernels = [_kernel(entry, schema) for entry in entries]
    names = set[str]()
    for kernel in kernels:
        if kernel.name in names:
            raise DescriptionError(f"kernel {kernel.name!r} is listed twice")
        names.add(kernel.name)
    return kernels


def _kernel(fields: Mapping[str, Any], schema: int) -> KernelRecord:
    _ = fields["name"], int(fields["call_sites"])
    kernel = KernelRecord(**fields)
    if kernel.signature is None:
        return kernel if kernel.reason is not None else replace(kernel, reason=_NOT_RECORDED)
    if schema == 1:
        if not kernel.results:
            return replace(kernel, signature=None, reason=_NOT_RECORDED)
        kernel = replace(kernel, signature=[*kernel.signature, *["OUT"] * len(kernel.results)])
    for direction in kernel.signature or ():
        if direction not in _DIRECTIONS:
            raise TypeError(f"kernel {kernel.name!r}: direction {direction!r}")
    if kernel.arguments or kernel.results:
        _check_whole(kernel)
    return kernel


def _check_whole(kernel: KernelRecord) -> None:
    """Refuses a kernel with a signature that differs from its arguments and results."""
    if kernel.signature != kernel.effective:
        raise DescriptionError(
            f"kernel {kernel.name!r}: signature is {kernel.signature}, its arguments and results say {kernel.effective}"
        )
    for index, (entry, spec) in enumerate(zip(kernel.arguments, kernel.argument_specs, strict=True)):
        if entry["kind"] != ("tensor" if spec.shape else "scalar") or entry["direction"] not in _DIRECTIONS:
            raise DescriptionError(f"kernel {kernel.name!r}: argument {index} is {entry}: kind or direction is wrong")
    _ = kernel.result_specs
    for index, entry in enumerate(kernel.results):
        alias = entry["alias_arg"]
        direction = "OUT" if alias is None else "INOUT"
        if entry["direction"] != direction or (alias is not None and not 0 <= alias < len(kernel.arguments)):
            raise DescriptionError(
                f"kernel {kernel.name!r}: result {index} has direction {entry['direction']} and alias_arg {alias}, of "
                f"{len(kernel.arguments)} arguments"
            )


def spec_fields(spec: TensorSpec) -> dict[str, Any]:
    """Returns the fields of a spec in the file."""
    return {"dtype": spec.dtype.name, "shape": list(spec.shape)}
