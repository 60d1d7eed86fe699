"""Execution contexts: what ops mean."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lang_core._dtypes import DType
from lang_core._module import Parameter
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops import Op, Ops


class ExecutionContext(ABC):
    """Gives ops their meaning. Model code asks ``ctx.ops`` for ops and ``ctx.parameter`` for weights.

    Attributes:
        ops: every op as a method.
        module_path: the path of the module that runs now, for names and messages.
    """

    def __init__(self) -> None:
        self.ops = Ops(self)
        self.module_path = ""

    @property
    def isRecording(self) -> bool:
        """Whether ops are recorded now rather than computed. A recording context overrides this."""
        return False

    @property
    def is_recording(self) -> bool:
        """The same as ``isRecording``, in Python's spelling."""
        return self.isRecording

    @abstractmethod
    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Computes or records one op. ``attributes`` are in the order of ``op.attributes``."""

    @abstractmethod
    def constant(self, value: Any, dtype: DType | str | None = None) -> Tensor:
        """A tensor of values known now. See ``ops.constant``."""

    def number(self, number: float, dtype: DType) -> Tensor:
        """A rank-0 constant of a Python number (bool, int or float)."""
        return self.constant(number, dtype)

    @abstractmethod
    def placeholder(self, name: str, spec: TensorSpec) -> Tensor:
        """A named input. See ``ops.placeholder``."""

    @abstractmethod
    def parameter(self, parameter: Parameter) -> Tensor:
        """A weight, in the dtype and shape the module declared."""

    @abstractmethod
    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """See ``ops.while_loop``."""

    @abstractmethod
    def conditional(
        self,
        pred: Tensor,
        on_true: Callable[..., Sequence[Tensor]],
        on_false: Callable[..., Sequence[Tensor]],
        operands: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """See ``ops.cond``."""

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Marks a repeated region, such as a decoder layer, as a unit of lowering. Blocks nest.

        An eager context has no use for it; a recording one overrides it.
        """
        del name
        yield
