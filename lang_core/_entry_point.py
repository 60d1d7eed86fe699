"""Entry points: the functions of a model that a bundle offers, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lang_core._choices import checked_choices
from lang_core._errors import RecordingError
from lang_core._mesh import Axes
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor


@checked_choices
@dataclass(frozen=True, slots=True)
class Argument:
    """Argument of an entry point.

    Attributes:
        name: name, unique among the arguments.
        spec: shape and dtype; rank 0 for a scalar.
        kind: ``"scalar"`` if the caller passes a number rather than a buffer.
        alias_result: name of the result that takes over this argument's buffer. Such an argument is donated: it is
            updated in place, and its old value is gone after the call.
        bounds: least and greatest allowed number of an integer argument: a position beyond the caches would overwrite
            their entries. Sessions refuse others.
        copied: True if the function updates this argument in place although the caller keeps it: sessions pass a copy.
        axes: per dimension the axis of a mesh that may cut it; None if the argument says nothing.
    """

    name: str
    spec: TensorSpec
    kind: Literal["tensor", "scalar"] = "tensor"
    alias_result: str | None = None
    copied: bool = False
    bounds: tuple[int, int] | None = None
    axes: Axes | None = None

    def __post_init__(self) -> None:
        if self.kind == "scalar" and self.spec.shape:
            raise RecordingError(f"argument {self.name!r}: a scalar has rank 0, found {self.spec!r}")
        if self.copied and (self.kind == "scalar" or self.alias_result is not None):
            what = "a scalar" if self.kind == "scalar" else "donated"
            raise RecordingError(f"argument {self.name!r}: only a tensor that is kept can be copied, and it is {what}")
        if self.axes is not None and len(self.axes) != len(self.spec.shape):
            raise RecordingError(
                f"argument {self.name!r}: expected an axis or None per dimension of {self.spec!r}, found {self.axes}"
            )
        if self.bounds is not None and not (self.spec.dtype.is_integer and self.bounds[0] <= self.bounds[1]):
            raise RecordingError(
                f"argument {self.name!r}: bounds are two integers, the lesser first, of an integer argument; found "
                f"{self.bounds} of {self.spec!r}"
            )


@checked_choices
@dataclass(frozen=True, slots=True)
class EntryPoint:
    """Function of a model: ``fn(ctx, *tensors)``, one tensor per argument, returns results by name.

    Attributes:
        name: name of the function.
        fn: the function.
        arguments: its arguments.
        batch_invariant: whether a token's results are to be the same bits however many tokens there are beside it. A
            target that has kernels with the same sums for any number of tokens then takes those.
    """

    name: str
    fn: Callable[..., Mapping[str, Tensor]]
    arguments: tuple[Argument, ...]
    batch_invariant: bool = False

    def __call__(self, ctx: Any, *tensors: Tensor) -> Mapping[str, Tensor]:
        """Runs the function in any context."""
        return self.fn(ctx, *tensors)
