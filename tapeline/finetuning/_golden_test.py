"""Training against PEFT, transformers and torch.optim.AdamW on the same windows: losses, and the weights that come out.

``tests/goldens/make_training_goldens.py`` wrote the file.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from run_jax.training import OptimizerOptions, Trainer
from tapeline.demo import write_demo_checkpoint
from tapeline.finetuning._adapter import adapted_modules, first_values
from tapeline.finetuning._objective import adapter_objective, full_objective
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import load_model

_WHERE = Path(__file__).parent / "testdata" / "peft.npz"


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(_WHERE, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def options(golden: dict[str, np.ndarray]) -> dict[str, Any]:
    return json.loads(str(golden["options"]))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
    directory = tmp_path_factory.mktemp("demo")
    write_demo_checkpoint(directory)
    with SafetensorsCheckpoint(directory) as checkpoint:
        yield load_model(directory), {key: np.array(checkpoint.read(key)) for key in checkpoint.keys()}  # noqa: SIM118


def _train(
    objective: Any, options: dict[str, Any], rate: float, trainable: Mapping[str, Any], frozen: Any, token_ids: Any
) -> tuple[list[float], dict[str, np.ndarray]]:
    trainer = Trainer(
        objective,
        OptimizerOptions(
            options["steps"],
            rate,
            schedule="constant",
            weight_decay=options["weight_decay"],
            largest_norm=options["largest_norm"],
        ),
    )
    state, held, losses = trainer.start(trainable), trainer.freeze(frozen), list[float]()
    weights = np.full((1, *token_ids[0, :, 1:].shape), 1 / token_ids[0, :, 1:].size, np.float32)
    for windows in token_ids:
        state, loss = trainer.step(state, held, windows[None], weights)
        losses.append(loss)
    return losses, dict(trainer.collect(state))


def test_an_adapter_trains_as_with_peft(model: Any, golden: Any, options: Any) -> None:
    modules = adapted_modules(model[0], options["lora_targets"])
    factors = first_values(modules, options["lora"], 0)
    given = {key.removeprefix("first/"): value for key, value in golden.items() if key.startswith("first/")}
    assert {key: value.shape for key, value in factors.items() if "lora_A" in key} == {
        key: value.shape for key, value in given.items()
    }
    for key, value in given.items():  # of the same distribution
        assert np.abs(factors[key]).max() == pytest.approx(np.abs(value).max(), rel=0.1)
        np.testing.assert_allclose(factors[key].std(), value.std(), rtol=0.2)
    objective = adapter_objective(model[0], modules, options["lora_alpha"] / options["lora"])
    start = {**factors, **given}
    losses, last = _train(objective, options, options["lora_rate"], start, model[1], golden["token_ids"])
    np.testing.assert_allclose(losses, golden["lora_losses"], rtol=2e-5)
    assert {f"last/{key}" for key in last} == {key for key in golden if key.startswith("last/")}
    # A step moves a value by up to 0.005 whatever the gradient's size: where it is small, AdamW divides its rounding by
    # it, which is another one on another CPU. So all are within a tenth of a step, and nearly all much nearer.
    for key, value in last.items():
        apart = np.abs(value - golden[f"last/{key}"])
        assert apart.max() < options["lora_rate"] / 10
        assert np.mean(apart < 2e-4) > 0.99


def test_all_parameters_train_as_with_torch(model: Any, golden: Any, options: Any) -> None:
    losses, last = _train(
        full_objective(model[0]), options, options["full_rate"], model[1], {}, golden["token_ids"]
    )  # fmt: skip
    np.testing.assert_allclose(losses, golden["full_losses"], rtol=2e-5)
    for name in golden:
        if name.startswith("norms/"):
            key = name.removeprefix("norms/")
            value, before = last[key].astype(np.float64), model[1][key].astype(np.float64)
            squares = [(value**2).sum(), ((value - before) ** 2).sum()]
            np.testing.assert_allclose(squares, golden[name], rtol=1e-3)
