"""Parameters, and the paths that they share with modules."""

from typing import Any, NoReturn

from lang_core._dtypes import DType
from lang_core._errors import OperatorError
from lang_core._operators import NoOperators
from lang_core._packing import Activations, Encoding
from lang_core._spec import TensorSpec


class Named:
    """Module or parameter: it has a path, made of the names that lead to it from the root.

    Attributes:
        path: names joined by dots, e.g. ``model.layers.3.self_attn``; empty for the root itself.
    """

    __slots__ = ()

    _parent: "Named | None"
    _name: str

    @property
    def path(self) -> str:
        """Returns the path from the root."""
        names, above = [self._name], self._parent
        while above is not None:
            if above._name:
                names.append(above._name)
            above = above._parent
        names.reverse()
        return ".".join(names)


class Parameter(Named, NoOperators):
    """Named weight, without its data. ``path`` is its name in a checkpoint; ``ctx.parameter`` reads it.

    A parameter that hangs below several modules is tied: it keeps the path at which it was first put.

    Attributes:
        spec: shape and dtype of the weight, whether it is packed or not.
        encoding: encoding of its packed bytes; None if it is an array of its spec.
        activations: form in which products with its packed bytes take x.
    """

    __slots__ = ("_name", "_parent", "activations", "encoding", "spec")

    def __init__(self, shape: tuple[int, ...], dtype: DType | str = "f32") -> None:
        self.spec = TensorSpec(shape, dtype)
        self.encoding: Encoding | None = None
        self.activations: Activations = "exact"
        self._parent: Named | None = None
        self._name: str = ""

    @property
    def stored_spec(self) -> TensorSpec:
        """Spec of the array that ``ctx.parameter`` gives: packed bytes if there is an encoding."""
        return self.spec if self.encoding is None else self.encoding.packed(self.spec)

    def _as_operand(self) -> tuple[str, str]:
        return repr(self), "read it, x = ctx.parameter(..), and "

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise OperatorError(f"{self!r} is the name of a weight and has no data: read it with ctx.parameter")

    def __repr__(self) -> str:
        return f"Parameter({self.path!r}, {self.spec!r}{'' if self.encoding is None else f', {self.encoding.name}'})"
