"""``FlowContext.load_param`` and ``synth_param``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lang_core import ConfigError, DType, Module, Parameter, TensorSpec, as_array, as_dtype
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
    found = flow.state.parameters.get(which)
    if found is not None:
        return found[1]
    loaded = _parameter(flow, key, TensorSpec(stored.shape, wanted))
    value = FlowValue.of(flow.ctx.parameter(loaded.parameter))
    if transpose:
        loaded = LoadedParameter(f"{loaded.name}.transposed", loaded.parameter, key)
        value = FlowValue.of(flow.ctx.ops.transpose(value.tensor))
    flow.state.parameters[which] = loaded, value
    return value


def _parameter(flow: "FlowContext", key: str, spec: TensorSpec) -> LoadedParameter:
    """The parameter of a key in a dtype: under the key itself for the first dtype that is asked for."""
    others = {known.dtype: loaded for known, (loaded, _) in flow.state.parameters.items() if known.key == key}
    if spec.dtype in others:
        parameter = others[spec.dtype].parameter
        return LoadedParameter(parameter.path, parameter, key)
    taken = parameter_of(flow.model, key)
    if not others and (taken is None or taken.spec == spec):
        return LoadedParameter(key, parameter_at(key, spec), key)
    path = f"{key}.as_{spec.dtype}"
    if flow.weights is not None:
        flow.weights.rename(path, key)
    return LoadedParameter(path, parameter_at(path, spec), key)


def synth_param(flow: "FlowContext", name: str, array: Any) -> FlowValue:
    """See ``FlowContext.synth_param``."""
    asked = f"synth_param({name!r}) at {flow.where}"
    if flow.weights is None:
        raise ConfigError(f"{asked}: the flow was built without weights: pass build(.., weights=..)")
    source = flow.weights.source
    taken = "a synthesised parameter" if name in flow.state.synthesised else ""
    taken = "a tensor of the weights" if source is not None and source.has(name) else taken
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
