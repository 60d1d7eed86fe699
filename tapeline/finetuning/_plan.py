"""Plan of a training: its parameters and data, checked before the first step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from generation import load_eos_ids
from lang_core import ConfigError, EagerExecutionContext, Parameter, WeightSource
from run_jax.training import OptimizerOptions, Trainer, TrainingMesh
from tapeline.exporting import ModelSource
from tapeline.finetuning._adapter import AdaptedModule, adapted_modules, factor_axes, first_values
from tapeline.finetuning._documents import Documents
from tapeline.finetuning._objective import adapter_objective, full_objective
from tapeline.finetuning._options import TrainOptions
from tapeline.finetuning._windows import PackedWindows
from tapeline.text import Tokenizer
from transformer_core.models import DecoderLM, load_model, weights_of
from transformer_core.sharding import parameter_axes


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Training that is ready to begin.

    Attributes:
        model: modules, in the dtype that is computed in.
        trainer: the compiled step.
        windows: data.
        trainable: initial values of the trained parameters.
        frozen: parameters that are not.
        modules: modules of the adapter; none if parameters are trained.
    """

    model: DecoderLM
    trainer: Trainer
    windows: PackedWindows
    trainable: Mapping[str, np.ndarray]
    frozen: Mapping[str, np.ndarray]
    modules: Sequence[AdaptedModule]


def make_plan(source: ModelSource, data: Path, options: TrainOptions) -> TrainingPlan:
    """Reads the data and the model's description; weights are read when they are asked for.

    Raises:
        InputError: data, model, options and devices do not fit each other.
    """
    model = _decoder(source, options.dtype)
    model.default_profile(options.batch, options.sequence, options.sequence)
    windows = PackedWindows(_documents(source, model, data), options.sequence, options.seed)
    weights, shape = weights_of(model, _weights(source)), options.mesh_shape()
    axes = {} if shape is None or shape.size_of("tp") == 1 else parameter_axes(model, shape)
    if options.lora is None:
        masters = _decoder(source, "f32")  # the same weights, read into f32
        trainable, rest = _Read(masters, weights, floating=True), _Read(masters, weights, floating=False)
        trainer = Trainer(full_objective(model), _optimizer(options), TrainingMesh(shape, axes))
        return TrainingPlan(model, trainer, windows, trainable, rest, ())
    modules = adapted_modules(model, options.lora_targets)
    factors = first_values(modules, options.lora, options.seed)
    objective = adapter_objective(model, modules, options.alpha / options.lora)
    mesh = TrainingMesh(shape, {**axes, **factor_axes(modules, axes)})
    trainer = Trainer(objective, _optimizer(options), mesh)
    return TrainingPlan(model, trainer, windows, factors, _Read(model, weights), modules)


def _optimizer(options: TrainOptions) -> OptimizerOptions:
    return OptimizerOptions(
        steps=options.steps,
        learning_rate=options.rate,
        warmup=options.warmup_steps,
        schedule=options.schedule,
        weight_decay=options.weight_decay,
        largest_norm=options.largest_norm,
    )


def _decoder(source: ModelSource, dtype: str) -> DecoderLM:
    model = load_model(source.directory, dtype)
    if not isinstance(model, DecoderLM):
        raise ConfigError(
            f"model={source.name}: {model.config.architecture} is no causal language model, and only these train"
        )
    return model


def _weights(source: ModelSource) -> WeightSource:
    assert source.weights is not None
    return source.weights


def _documents(source: ModelSource, model: DecoderLM, data: Path) -> list[Any]:
    ends = sorted(load_eos_ids(source.directory))
    tokenizer, vocabulary = Tokenizer.load(source.directory), model.config.vocabulary
    return Documents(tokenizer, source.directory, vocabulary, ends[0] if ends else None).read(data)


class _Read(Mapping[str, np.ndarray]):
    """Parameters of a model by path, each read when it is asked for.

    Args:
        model: model.
        weights: its weights.
        floating: which parameters there are: fractions or others; all if None.
    """

    def __init__(self, model: DecoderLM, weights: WeightSource, *, floating: bool | None = None) -> None:
        self._context: Final = EagerExecutionContext(weights)
        self._parameters: Final[dict[str, Parameter]] = {
            path: parameter
            for path, parameter in model.named_parameters()
            if floating is None or parameter.spec.dtype.is_floating is floating
        }

    def __getitem__(self, path: str) -> np.ndarray:
        return np.asarray(self._context.parameter(self._parameters[path]).data)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)
