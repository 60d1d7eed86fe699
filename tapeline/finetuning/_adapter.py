"""The LoRA adapter that is trained: which linear layers it changes, and its first values."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import ConfigError, ExecutionContext, Tensor, TensorSpec, near_names
from run_jax.training import trace
from transformer_core.models import DecoderLM, StoredLayout
from transformer_core.training import LowRankChange, noted_linears

_WEIGHT: Final = ".weight"
RIGHT: Final = ".lora_A.weight"
LEFT: Final = ".lora_B.weight"
_HEAD: Final = "lm_head.weight"


class AdaptedModule(NamedTuple):
    """Linear layer of the checkpoint that an adapter changes; the model may have it in parts.

    Attributes:
        name: name of the module in the checkpoint.
        inputs: number of inputs.
        outputs: number of outputs.
        transposed: whether the checkpoint stores it [inputs, outputs].
        parts: the layer's rows of each weight of the model, by path; all if None.
    """

    name: str
    inputs: int
    outputs: int
    transposed: bool
    parts: Mapping[str, Sequence[int] | None]


def adapted_modules(model: DecoderLM, targets: Sequence[str]) -> list[AdaptedModule]:
    """Returns the linear layers that an adapter changes, in the order of the model.

    Args:
        model: model.
        targets: last parts of names of modules, or whole names; all but the head if empty.

    Raises:
        ConfigError: a target is not a linear layer, or none exists.
    """
    modules = _linear_modules(model)
    if not targets:
        chosen = [module for module in modules if _HEAD not in module.parts]
        if not chosen:
            raise ConfigError(f"lora: {model.config.architecture} has no linear layer that an adapter could change")
        return chosen
    for target in targets:
        if not any(_is(module, target) for module in modules):
            ends = sorted({module.name.rpartition(".")[2] for module in modules})
            raise ConfigError(
                f"lora_targets={target}: not found among the linear layers; available: {', '.join(ends) or 'none'}"
                f"{near_names(target, ends)}"
            )
    return [module for module in modules if any(_is(module, target) for target in targets)]


def first_values(modules: Sequence[AdaptedModule], rank: int, seed: int) -> dict[str, np.ndarray]:
    """Returns A and B of each module as PEFT begins: A uniform in +-1 / sqrt(inputs) (Kaiming's with a = sqrt(5)), B 0.

    A is f32 [rank, inputs], B f32 [outputs, rank].

    Raises:
        ConfigError: the rank is larger than a module's inputs or outputs.
    """
    values: dict[str, np.ndarray] = {}
    for number, module in enumerate(modules):
        if rank > min(module.inputs, module.outputs):
            raise ConfigError(
                f"lora={rank}: {module.name} is [{module.outputs}, {module.inputs}]: give a rank of at most "
                f"{min(module.inputs, module.outputs)}"
            )
        raw = np.random.PCG64([seed, number]).random_raw(rank * module.inputs) >> np.uint64(40)
        uniform = raw.astype(np.float32) / np.float32(1 << 24) * 2 - 1
        values[module.name + RIGHT] = uniform.reshape(rank, module.inputs) * np.float32(module.inputs**-0.5)
        values[module.name + LEFT] = np.zeros((module.outputs, rank), np.float32)
    return values


def changes_of(
    modules: Sequence[AdaptedModule], factors: Mapping[str, Tensor], scale: float
) -> dict[str, LowRankChange]:
    """Returns the change of each weight of the model.

    Args:
        modules: layers with an adapter.
        factors: A, f32 [rank, inputs], and B, f32 [outputs, rank], of each, under the adapter's names.
        scale: factor of their product.
    """
    return {
        path: LowRankChange(factors[module.name + RIGHT], factors[module.name + LEFT], scale, rows)
        for module in modules
        for path, rows in module.parts.items()
    }


def factor_axes(
    modules: Sequence[AdaptedModule], axes: Mapping[str, Sequence[str | None]]
) -> dict[str, tuple[str | None, ...]]:
    """Returns the axes of A and B: inputs and outputs are cut as the weight's, ranks never."""
    table: dict[str, tuple[str | None, ...]] = {}
    for module in modules:
        of = {tuple(axes[path]) for path in module.parts if path in axes}
        inputs = {columns for _, columns in of}
        whole = len(of) == 1 and all(rows is None for rows in module.parts.values())
        table[module.name + RIGHT] = (None, inputs.pop() if len(inputs) == 1 else None)
        table[module.name + LEFT] = (of.pop()[0] if whole else None, None)
    return table


def _linear_modules(model: DecoderLM) -> list[AdaptedModule]:
    """Returns the linear layers of which an adapter can change every row."""
    layout, parts = StoredLayout(model), dict[str, dict[str, Any]]()
    linear, specs = _linear_weights(model), {path: p.spec for path, p in model.named_parameters()}
    for path, spec in specs.items():
        stored = layout.matrix(path, spec.shape) if path in linear and spec.ndim == 2 else None
        if stored is not None and stored.key.endswith(_WEIGHT):
            parts.setdefault(stored.key, {})[path] = stored
    modules = []
    for key, of in parts.items():
        (first, *_), rows = of.values(), sum(len(stored.rows) for stored in of.values())
        if rows == first.outputs:
            used = {path: None if stored.whole else stored.rows for path, stored in of.items()}
            name = key.removesuffix(_WEIGHT)
            modules.append(AdaptedModule(name, first.inputs, first.outputs, first.transposed, used))
    return modules


def _linear_weights(model: DecoderLM) -> set[str]:
    """Returns the paths of the weights that linear layers multiply with, by tracing the model on two tokens."""
    specs = {path: parameter.spec for path, parameter in model.named_parameters()}
    paths = set[str]()

    def probe(ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        with noted_linears(ctx, paths):
            return model(ctx, token_ids)

    trace(probe, specs, TensorSpec((1, 2), "i32"))
    return paths & set(specs)


def _is(module: AdaptedModule, target: str) -> bool:
    return module.name == target or module.name.endswith(f".{target}")
