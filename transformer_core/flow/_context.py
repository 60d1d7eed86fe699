"""What stages get when the model runs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, OpError, Tensor, TensorSpec, as_dtype, near_names, tag_name
from transformer_core._cache import Cache
from transformer_core._step import Step
from transformer_core.flow._calls import run_module
from transformer_core.flow._emit import Emit
from transformer_core.flow._loading import load_param, synth_param
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._state import FlowState
from transformer_core.flow._value import Dim, FlowValue, bind, checked
from transformer_core.flow._weights import FlowWeights


class FlowContext:
    """One run of a flow.

    Attributes:
        ctx: the execution context: ``flow.ctx.ops`` has the ops.
        model: the root of the module tree.
        profile: what the model was built for.
        weights: what ``load_param`` reads; None where the model was built without.
        state: what the stages know of one another.
        emit: raw ops on flow values.
    """

    def __init__(
        self, ctx: ExecutionContext, model: Module, profile: CompileProfile, weights: FlowWeights | None
    ) -> None:
        self.ctx: Final = ctx
        self.model: Final = model
        self.profile: Final = profile
        self.weights: Final = weights
        self.state: Final = FlowState()
        self.emit: Final = Emit(ctx)

    @property
    def module_path(self) -> str:
        """The path of the module that runs now."""
        return self.ctx.module_path

    @property
    def where(self) -> str:
        """The same for messages."""
        return self.ctx.module_path or "the root"

    def value(self, tensor: Tensor, spec: TensorSpec | None = None) -> FlowValue:
        """A tensor as a value, held to a spec at once where there is one."""
        return checked(FlowValue(tensor, tensor.spec if spec is None else spec), self.where)

    def run(self, module: Module, *values: FlowValue) -> FlowValue:
        """Runs a module of one result, of whatever kind, and checks what it hands on."""
        (result,) = self.run_several(module, values, 1)
        return result

    def run_several(self, module: Module, values: Sequence[FlowValue], count: int) -> tuple[FlowValue, ...]:
        """Runs a module of ``count`` results.

        Raises:
            OpError: it hands on another number of values, or one whose spec is not its tensor's; names the module.
        """
        maker = f"{module.path or 'the root'} ({type(module).__name__})"
        before, self.ctx.module_path = self.ctx.module_path, module.path
        try:
            results = run_module(self, module, values)
        finally:
            self.ctx.module_path = before
        if len(results) != count:
            raise OpError(f"{maker}: expected {count} values; found {len(results)}: return one per stream")
        return tuple(checked(result, maker) for result in results)

    @property
    def step(self) -> Step:
        """RoPE's tables and the masks.

        Raises:
            OpError: no stage has made them.
        """
        if self.state.step is None:
            raise OpError(f"{self.where} needs RoPE's tables: put .rope_tables(..) before this stage")
        return self.state.step

    def slot(self, module: Module, sibling: int | None = None) -> Cache | None:
        """What came in of a module's cache or state, or what it wrote last; or of another layer of its repetition."""
        path = module.path if sibling is None else f"{module.path.rpartition('.')[0]}.{sibling}"
        return self.state.slots.get(path)

    def fill(self, module: Module, cache: Cache | None) -> None:
        """Takes a module's updated cache or state."""
        if cache is not None:
            self.state.slots[module.path] = cache
            self.state.written.add(module.path)

    def input(self, name: str) -> FlowValue:
        """An input of the model."""
        return _known("input", name, self.state.inputs, self.where)

    def stream(self, name: str) -> FlowValue:
        """What a stream holds."""
        return _known("stream", name, self.state.streams, self.where)

    def store_stream(self, name: str, value: FlowValue) -> None:
        """Puts a value into a stream, new or not."""
        self.state.streams[name] = checked(value, f"stream {name!r} at {self.where}")

    def named(self, name: str) -> FlowValue:
        """A value that was kept."""
        return _known("value", name, self.state.named, self.where)

    def keep(self, name: str, value: FlowValue) -> FlowValue:
        """Keeps a value under a name, for later stages; gives it back.

        Raises:
            OpError: the name is taken.
        """
        if name in self.state.named:
            raise OpError(
                f"value {name!r} at {self.where}: the name is taken: a value is kept once, a stream may change"
            )
        self.state.named[name] = checked(value, f"value {name!r} at {self.where}")
        return value

    def read(self, name: str) -> FlowValue:
        """A stream, a kept value or an input, whichever has the name, in this order."""
        state = self.state
        return _known("value", name, {**state.inputs, **state.named, **state.streams}, self.where)

    def side_output(
        self, name: str, value: FlowValue, dims: Sequence[Dim] | None = None, dtype: DType | str | None = None
    ) -> FlowValue:
        """Makes a value a result besides the model's, below the path of the module that runs; gives it back.

        Args:
            name: unique in the module.
            value: the result.
            dims: its shape, in sizes and letters; any where None.
            dtype: its dtype; any where None.

        Raises:
            OpError: the name is taken, or the value is of another shape or dtype.
        """
        full = tag_name(self.module_path, name)
        value = checked(value, f"side output {full!r}")
        if full in self.state.outputs:
            raise OpError(f"side output {full!r}: the name is taken")
        wanted = value.dtype if dtype is None else as_dtype(dtype)
        bind(f"side output {full!r}", value.shape if dims is None else dims, wanted, value.spec, self.state.sizes)
        self.state.outputs[full] = value
        return value

    def load_param(
        self,
        key: str,
        transpose: bool = False,
        *,
        dtype: DType | str | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> FlowValue:
        """A tensor of the weights, by its key. The same key, orientation and dtype give the same parameter.

        Args:
            key: of the weights, whatever module runs.
            transpose: whether the columns of the stored matrix become rows; it is stored once, whatever is asked.
            dtype: of the value; where None the profile's, or the stored one where that is no floating dtype.
            shape: of the value; any where None.

        Raises:
            CheckpointError: the key is missing, or its tensor has another shape; names key, shapes and module path.
        """
        return load_param(self, key, transpose, dtype, shape)

    def synth_param(self, name: str, array: Any) -> FlowValue:
        """A parameter whose values the flow computes; ``FlowModel.weights`` has them.

        Raises:
            ConfigError: a weight, a module's parameter or a synthesised one has the name.
        """
        return synth_param(self, name, array)


def _known(kind: str, name: str, known: Mapping[str, FlowValue], where: str) -> FlowValue:
    if name not in known:
        there = ", ".join(known) or "none"
        raise OpError(f"{kind} {name!r} at {where}: there is no such one, but {there}{near_names(name, known)}")
    return known[name]
