"""A training step: forward, backward and update, as one entry point."""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby

from compile_dag.gradient import value_and_gradient
from lang_core import Argument, EntryPoint, ExecutionContext, Tensor, TensorSpec
from transformer_core.models import DecoderLM
from transformer_core.training import AdamW, Moments, cross_entropy


def training_step(model: DecoderLM, batch: int, sequence: int, optimizer: AdamW | None = None) -> EntryPoint:
    """Returns ``train(token_ids [B, T + 1], learning_rate, step, parameters, moments)``: one step of AdamW.

    Each token is predicted from those before it. Parameters and moments are arguments that are donated and come back
    updated: ``<path>``, ``first_moment.<path>``, ``second_moment.<path>``. ``step`` is 1 at first.

    Args:
        model: model to train; its parameters' values are the arguments.
        batch: B.
        sequence: T.
        optimizer: the optimiser; AdamW as it comes if None.

    Returns:
        The entry point; its results are ``loss``, rank-0 f32, before the step, and the donated arguments.
    """
    adamw = AdamW() if optimizer is None else optimizer
    specs = {path: parameter.spec for path, parameter in model.named_parameters()}

    def loss(ctx: ExecutionContext, parameters: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        with ctx.parameters_from(parameters):
            logits = model(ctx, ctx.ops.slice_axis(token_ids, 1, 0, sequence))
        return cross_entropy(ctx, logits, ctx.ops.slice_axis(token_ids, 1, 1, sequence + 1))

    def train(
        ctx: ExecutionContext, token_ids: Tensor, learning_rate: Tensor, step: Tensor, *state: Tensor
    ) -> dict[str, Tensor]:
        parameters, first, second = (
            dict(zip(specs, state[i * len(specs) : (i + 1) * len(specs)], strict=True)) for i in range(3)
        )
        value, (gradients,) = value_and_gradient(loss)(ctx, parameters, token_ids)
        scale = adamw.scale(ctx, gradients)
        new: dict[str, Tensor] = {"loss": value}
        for block, paths in _by_layer(specs):
            with ctx.block(f"{block}.update"):
                for path in paths:
                    gradient = ctx.ops.mul(ctx.ops.cast(gradients[path], "f32"), scale)
                    moments = Moments(first[path], second[path])
                    new[path], (new[f"first_moment.{path}"], new[f"second_moment.{path}"]) = adamw.update(
                        ctx, parameters[path], gradient, moments, learning_rate, step
                    )
        return {name: new[name] for name in ("loss", *_state_specs(specs))}

    arguments = (
        Argument("token_ids", TensorSpec((batch, sequence + 1), "i32")),
        Argument("learning_rate", TensorSpec((), "f32"), kind="scalar"),
        Argument("step", TensorSpec((), "i32"), kind="scalar"),
        *(Argument(name, spec, alias_result=name) for name, spec in _state_specs(specs).items()),
    )
    return EntryPoint("train", train, arguments)


def _state_specs(specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    """Returns the specs of the state that a step updates: parameters, first moments, second moments."""
    moments = {path: TensorSpec(spec.shape, "f32") for path, spec in specs.items()}
    first = {f"first_moment.{path}": spec for path, spec in moments.items()}
    return {**specs, **first, **{f"second_moment.{path}": spec for path, spec in moments.items()}}


def _by_layer(paths: Mapping[str, TensorSpec]) -> Iterator[tuple[str, list[str]]]:
    """The paths of each layer, ``model.layers.3``, and of modules outside of layers, by the path's first part."""

    def layer(path: str) -> str:
        match = re.match(r".*?\.\d+(?=\.)", path)
        return match.group() if match else path

    for name, group in groupby(paths, layer):
        yield name, list(group)
