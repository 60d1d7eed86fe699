"""The step against AdamW's formulas in NumPy, accumulated batches, meshes that do not fit, and checkpoints."""

import errno
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lang_core import CheckpointError, ConfigError, DeviceError, MeshShape
from run_jax.training import OptimizerOptions, Trainer, TrainingCheckpoints, TrainingMesh, TrainingState, rate_schedule

_RNG = np.random.default_rng(2)
_START = {"w": _RNG.standard_normal((3, 2)).astype(np.float32), "b": np.zeros(2, np.float32)}


def _objective(trainable: Any, frozen: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum((x @ trainable["w"] * frozen["scale"] + trainable["b"] - y) ** 2)


def _batch(batches: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    shapes = (batches, rows, 3), (batches, rows, 2)
    return tuple(_RNG.standard_normal(shape).astype(np.float32) for shape in shapes)  # type: ignore[return-value]


def _bytes(state: TrainingState) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("constant", [1, 2, 2, 2, 2, 2]),
        ("linear", [1, 2, 2, 1.5, 1, 0.5]),
        ("cosine", [1, 2, 2, 1 + 2**-0.5, 1, 1 - 2**-0.5]),
    ],
)
def test_rates_rise_and_fall(schedule: Any, wanted: list[float]) -> None:
    rate = rate_schedule(OptimizerOptions(6, 2.0, warmup=2, schedule=schedule))
    assert [float(np.asarray(rate(step))) for step in range(6)] == pytest.approx(wanted)


def test_steps_are_those_of_the_formulas() -> None:
    """AdamW of the paper in f64, with the bound of the norm and decay of matrices alone."""
    options = OptimizerOptions(4, 0.05, weight_decay=0.3, largest_norm=0.7, eps=1e-4)
    trainer = Trainer(_objective, options)
    state, frozen = trainer.start(_START), trainer.freeze({"scale": np.array([2, 1], np.float32)})
    weights = {path: array.astype(np.float64) for path, array in _START.items()}
    first, second = ({path: np.zeros_like(array) for path, array in weights.items()} for _ in range(2))
    for step in range(1, 5):
        x, y = _batch(1, 5)
        error = x[0] @ weights["w"] * [2, 1] + weights["b"] - y[0]
        gradients = {"w": x[0].T @ (2 * error) * [2, 1], "b": 2 * error.sum(0)}
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        rate = 0.05 * (5 - step) / 4
        for path, raw in gradients.items():
            gradient = raw * min(1, 0.7 / norm)
            first[path] = 0.9 * first[path] + 0.1 * gradient
            second[path] = 0.999 * second[path] + 0.001 * gradient**2
            change = first[path] / (1 - 0.9**step) / (np.sqrt(second[path] / (1 - 0.999**step)) + 1e-4)
            weights[path] = weights[path] - rate * (change + 0.3 * weights[path] * (path == "w"))
        state, loss = trainer.step(state, frozen, x, y)
        np.testing.assert_allclose(loss, (error**2).sum(), rtol=1e-5)
    for path, array in weights.items():
        np.testing.assert_allclose(state.trainable[path], array, rtol=1e-4, atol=1e-6)


def test_accumulated_batches_are_one_batch() -> None:
    batch = _batch(3, 2)
    results = []
    for arrays in (batch, tuple(array.reshape(1, 6, -1) for array in batch)):
        trainer = Trainer(_objective, OptimizerOptions(2, 0.1))
        frozen = trainer.freeze({"scale": np.ones(2, np.float32)})
        results.append(trainer.step(trainer.start(_START), frozen, *arrays))
    (state, loss), (other, same) = results
    np.testing.assert_allclose(loss, same, rtol=1e-6)
    np.testing.assert_allclose(state.trainable["w"], other.trainable["w"], rtol=1e-4)


def test_the_state_is_donated() -> None:
    trainer = Trainer(_objective, OptimizerOptions(2, 0.1))
    state = trainer.start(_START)
    trainer.step(state, trainer.freeze({"scale": np.ones(2, np.float32)}), *_batch(1, 2))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path: Path) -> None:
    trainer = Trainer(_objective, OptimizerOptions(3, 0.1))
    frozen, batches = trainer.freeze({"scale": np.ones(2, np.float32)}), [_batch(1, 4) for _ in range(3)]
    state, _ = trainer.step(trainer.start(_START), frozen, *batches[0])
    with TrainingCheckpoints(tmp_path) as checkpoints:
        assert checkpoints.latest() is None
        checkpoints.save(1, state)
    for batch in batches[1:]:
        state, _ = trainer.step(state, frozen, *batch)
    again = Trainer(_objective, OptimizerOptions(3, 0.1))
    with TrainingCheckpoints(tmp_path) as checkpoints:
        assert checkpoints.latest() == 1
        resumed = checkpoints.restore(1, again.start(_START))
    for batch in batches[1:]:
        resumed, _ = again.step(resumed, frozen, *batch)
    assert _bytes(resumed) == _bytes(state)


def test_what_a_failed_attempt_still_writes_is_removed_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, save = Trainer(_objective, OptimizerOptions(3, 0.1)).start(_START), ocp.CheckpointManager.save
    refusals = [errno.ENOTEMPTY, errno.ENOTEMPTY, errno.EIO]

    def refused(manager: ocp.CheckpointManager, step: int, **options: Any) -> Any:
        if len(refusals) > step:
            raise OSError(refusals.pop(0), "refused", "d")
        return save(manager, step, **options)

    monkeypatch.setattr(ocp.CheckpointManager, "save", refused)
    with TrainingCheckpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
        assert (checkpoints.latest(), refusals) == (1, [errno.EIO])
        with pytest.raises(OSError, match="refused"):
            checkpoints.save(0, state)


def test_a_checkpoint_of_other_parameters_is_refused(tmp_path: Path) -> None:
    trainer = Trainer(_objective, OptimizerOptions(3, 0.1))
    with TrainingCheckpoints(tmp_path) as checkpoints:
        checkpoints.save(1, trainer.start(_START))
        with pytest.raises(CheckpointError, match="the checkpoint of step 1 cannot be read"):
            checkpoints.restore(1, trainer.start({"v": np.zeros(4, np.float32)}))


def test_meshes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DeviceError, match="mesh dp=64: is of 64 devices, and JAX has "):
        TrainingMesh(MeshShape.parse("dp=64"))
    with pytest.raises(ConfigError, match="mesh ep=2: training has no axis ep"):
        TrainingMesh(MeshShape.parse("ep=2"))
    with pytest.raises(ConfigError, match="mesh tp=2: the model has no table of axes for tp"):
        TrainingMesh(MeshShape.parse("tp=2"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps=0: give a number at least 1"),
        ({"learning_rate": 0.0}, r"learning_rate=0\.0: give a number above 0 and below 10"),
        ({"warmup": 9}, r"warmup=9: give a number 0 to steps \(5\)"),
        ({"schedule": "step"}, "schedule: expected one of constant, linear, cosine; found 'step'"),
        ({"weight_decay": -1.0}, r"weight_decay=-1\.0: give a number at least 0"),
        ({"beta1": 1.0}, r"beta1=1\.0: give"),
        ({"beta2": 1.0}, r"beta2=1\.0: give"),
        ({"eps": 0.0}, r"eps=0\.0: give"),
        ({"largest_norm": -1.0}, r"largest_norm=-1\.0: give"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OptimizerOptions(**{"steps": 5, "learning_rate": 0.1, **changes})
