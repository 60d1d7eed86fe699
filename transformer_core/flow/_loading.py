"""Parameters that stages load by key or compute: ``FlowContext.load_param`` and ``synth_param``."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lang_core import (
    DTYPES,
    ConfigError,
    DType,
    ExecutionContext,
    Module,
    OpError,
    Parameter,
    TensorSpec,
    as_array,
    as_dtype,
    tag_name,
)
from transformer_core.flow._state import FlowState
from transformer_core.flow._value import FlowValue, checked_shape
from transformer_core.flow._weights import FlowWeights, ParameterKey, parameter_at, stored_spec


class ParameterLoader:
    """Makes the parameters that the stages of one run ask for, each once.

    Args:
        ctx: context that computes.
        model: root of the module tree with the parameters' names.
        dtype: default dtype of floating parameters.
        weights: source of the parameters; gets those that are computed.
        state: state of the run, with the loaded values.
    """

    def __init__(
        self, ctx: ExecutionContext, model: Module, dtype: DType, weights: FlowWeights, state: FlowState
    ) -> None:
        self._ctx: Final = ctx
        self._model: Final = model
        self._dtype: Final = dtype
        self._weights: Final = weights
        self._state: Final = state

    def load(self, key: str, transpose: bool, dtype: DType | str | None, shape: tuple[int, ...] | None) -> FlowValue:
        """Loads a tensor of the weights; see ``FlowContext.load_param``."""
        asked_at = f"load_param({key!r}) at {self._ctx.module_path or 'the root'}"
        if not isinstance(key, str):
            raise ConfigError(f"{asked_at}: expected a key of the weights, a text")
        shape = None if shape is None else checked_shape(shape, asked_at)
        stored = stored_spec(self._weights.source, key, self._ctx.module_path, shape, transpose)
        floating = self._dtype if stored.dtype.is_floating else stored.dtype
        wanted = floating if dtype is None else as_dtype(dtype)
        asked = ParameterKey(key, transpose, wanted)
        value = self._state.loaded.get(asked)
        if value is None:
            tensor = self._ctx.parameter(self._parameter(key, TensorSpec(stored.shape, wanted)))
            value = FlowValue.of(self._ctx.ops.transpose(tensor) if transpose else tensor)
            self._state.loaded[asked] = value
        return value

    def _parameter(self, key: str, spec: TensorSpec) -> Parameter:
        """Returns the parameter of a key in a dtype; the first dtype that is asked for has the key as its path."""
        known, asked = self._state.parameters, ParameterKey(key, False, spec.dtype)
        if asked in known:
            return known[asked]
        taken, path = parameter_of(self._model, key), key
        in_others = any(ParameterKey(key, False, dtype) in known for dtype in DTYPES)
        if in_others or (taken is not None and taken.spec != spec) or not key:
            path = f"{key or 'unnamed'}.as_{spec.dtype}"
            while not self._weights.is_free(path, key) or parameter_of(self._model, path) is not None:
                path += "_"  # the weights or the model have a key of this name
            self._weights.rename(path, key)
        known[asked] = parameter_at(path, spec)
        return known[asked]

    def synthesise(self, name: str, data: Any, shape: tuple[int, ...] | None, dtype: DType | str | None) -> FlowValue:
        """Adds a parameter with computed values; see ``FlowContext.synth_param``."""
        if not isinstance(name, str) or not name:
            raise ConfigError(f"synth_param({name!r}): expected a name, a text that is not empty")
        path = tag_name(self._state.layer, name)
        asked = f"synth_param({name!r}) at {self._ctx.module_path or 'the root'}"
        source = self._weights.source
        taken = "a synthesised parameter" if path in self._state.synthesised else ""
        taken = "a tensor of the weights" if source is not None and source.has(path) else taken
        taken = "a tensor that is loaded in a second dtype" if self._weights.is_alias(path) else taken
        taken = "a module's parameter" if parameter_of(self._model, path) is not None else taken
        if taken:
            raise ConfigError(f"{asked}: the name is taken by {taken}: choose another")
        shape = None if shape is None else checked_shape(shape, asked)
        try:
            values = _converted(data, shape, dtype, self._dtype)
        except OpError as error:
            raise ConfigError(f"{asked}: {error}") from None
        self._weights.synthesise(path, values)
        parameter = parameter_at(path, TensorSpec(values.shape, as_dtype(values.dtype)))
        self._state.synthesised[path] = parameter
        return FlowValue.of(self._ctx.parameter_or(parameter, values))


def _converted(data: Any, shape: tuple[int, ...] | None, dtype: DType | str | None, floating: DType) -> np.ndarray:
    """Converts computed values to the dtype of a parameter.

    Args:
        data: number, nested sequences or array.
        shape: required shape; any if None.
        dtype: dtype of the parameter; if None ``floating`` for floating values, else their own.
        floating: dtype of the model.

    Raises:
        OpError: the shape differs, or a value does not fit the dtype.
    """
    try:
        array = np.asarray(data)
    except ValueError as error:  # rows of several lengths
        raise OpError(f"{data!r} does not fit an array: {error}") from None
    array = array if array.dtype.kind == "f" else as_array(data)
    own = as_dtype(array.dtype)
    wanted = (floating if own.is_floating else own) if dtype is None else as_dtype(dtype)
    if shape is not None and array.shape != tuple(shape):
        raise OpError(f"expected shape {list(shape)}; found {list(array.shape)}")
    with np.errstate(all="ignore"):
        values = array.astype(wanted.numpy)
        fit = np.isfinite(values) == np.isfinite(array) if wanted.is_floating else values == array
    if not np.all(fit):
        lost = array[~fit].flat[0] if array.ndim else array
        raise OpError(f"{lost} does not fit {wanted}: pass dtype=, or other values")
    return values


def parameter_of(root: Module, path: str) -> Parameter | None:
    """Returns the parameter at a path of a module tree; None if there is none."""
    node: Any = root
    for name in path.split("."):
        if isinstance(node, Module):
            node = vars(node).get(name)
        elif isinstance(node, Sequence) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node if isinstance(node, Parameter) else None
