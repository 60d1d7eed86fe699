"""``FlowContext.load_param`` and ``synth_param``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lang_core import DTYPES, ConfigError, DType, Module, Parameter, TensorSpec, as_array, as_dtype
from transformer_core.flow._value import FlowValue
from transformer_core.flow._weights import LoadedParameter, ParameterKey, parameter_at, stored_spec

if TYPE_CHECKING:
    from transformer_core.flow._context import FlowContext


def load_param(
    flow: "FlowContext", key: str, transpose: bool, dtype: DType | str | None, shape: tuple[int, ...] | None
) -> FlowValue:
    """See ``FlowContext.load_param``."""
    stored = stored_spec(flow.weights, key, flow.module_path, shape, transpose)
    floating = flow.profile.dtype if stored.dtype.is_floating else stored.dtype
    wanted = floating if dtype is None else as_dtype(dtype)
    which = ParameterKey(key, transpose, wanted)
    found = flow.state.loaded.get(which)
    if found is not None:
        return found
    loaded = flow.state.parameters.get(which)
    if loaded is None:
        parameter = _parameter(flow, key, TensorSpec(stored.shape, wanted))
        loaded = LoadedParameter(f"{parameter.path}.transposed" if transpose else parameter.path, parameter, key)
        flow.state.parameters[which] = loaded
    tensor = flow.ctx.parameter(loaded.parameter)
    value = flow.state.loaded[which] = FlowValue.of(flow.ctx.ops.transpose(tensor) if transpose else tensor)
    return value


def _parameter(flow: "FlowContext", key: str, spec: TensorSpec) -> Parameter:
    """The parameter of a key in a dtype: under the key itself for the first dtype that is asked for."""
    known = flow.state.parameters
    for transpose in (False, True):
        same = known.get(ParameterKey(key, transpose, spec.dtype))
        if same is not None:
            return same.parameter
    taken = parameter_of(flow.model, key)
    other = taken is not None and taken.spec != spec
    if not other and not any(ParameterKey(key, t, dtype) in known for t in (False, True) for dtype in DTYPES):
        return parameter_at(key, spec)
    path = f"{key}.as_{spec.dtype}"
    if flow.weights is not None:
        flow.weights.rename(path, key)
    return parameter_at(path, spec)


def synth_param(flow: "FlowContext", name: str, array: Any) -> FlowValue:
    """See ``FlowContext.synth_param``."""
    asked = f"synth_param({name!r}) at {flow.where}"
    if flow.weights is None:
        raise ConfigError(f"{asked}: the flow was built without weights: pass build(.., weights=..)")
    taken = "a synthesised parameter" if name in flow.state.synthesised else ""
    taken = "a tensor of the weights" if flow.weights.source.has(name) else taken
    taken = "a module's parameter" if parameter_of(flow.model, name) is not None else taken
    if taken:
        raise ConfigError(f"{asked}: the name is taken by {taken}: choose another")
    values = as_array(array)
    flow.weights.synthesise(name, values)
    spec = TensorSpec(values.shape, as_dtype(values.dtype))
    loaded = flow.state.synthesised[name] = LoadedParameter(name, parameter_at(name, spec), None)
    return FlowValue.of(flow.ctx.parameter(loaded.parameter))


def parameter_of(root: Module, path: str) -> Parameter | None:
    """The parameter of a module tree at a path, if there is one."""
    found: Any = root
    for name in path.split("."):
        if isinstance(found, Module):
            found = vars(found).get(name)
        elif isinstance(found, Sequence) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found if isinstance(found, Parameter) else None
