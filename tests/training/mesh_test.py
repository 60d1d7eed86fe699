"""Training on meshes of virtual devices: each loss, and the weights, are those of one device.

By default on two meshes that have every axis between them; with TAPELINE_LONG=1 in the environment on each axis alone.
"""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapeline
from lang_core import ConfigError, MeshShape
from run_jax.training import OptimizerOptions, Trainer, TrainingMesh
from tests.training._small import OPTIONS, write_small
from transformer_core.checkpoints import SafetensorsFile


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert len(jax.devices()) == 4, "XLA_FLAGS=--xla_force_host_platform_device_count=4 is to be set"
    directory = tmp_path_factory.mktemp("meshes")
    write_small(directory)
    return directory


def train(here: Path, **options: Any) -> tuple[list[float], dict[str, np.ndarray]]:
    name = "_".join(map(str, options.values()))
    trained = tapeline.train("model", "data.txt", name, base=here, **{**OPTIONS, **options})
    file = trained.path / ("adapter_model.safetensors" if "lora" in options else "model.safetensors")
    with SafetensorsFile(file) as stored:
        return trained.losses, {key: np.array(stored.read(key)) for key in stored.keys()}  # noqa: SIM118


def compare(mine: tuple[list[float], dict[str, np.ndarray]], wanted: tuple[list[float], dict[str, np.ndarray]]) -> None:
    np.testing.assert_allclose(mine[0], wanted[0], atol=1e-5)
    assert set(mine[1]) == set(wanted[1])
    for key, array in wanted[1].items():
        np.testing.assert_allclose(mine[1][key], array, atol=1e-4, err_msg=key)


@pytest.fixture(scope="module")
def of_one_device(here: Path) -> tuple[list[float], dict[str, np.ndarray]]:
    return train(here, mesh=None)


@pytest.mark.parametrize(
    "mesh", ["dp=2,fsdp=2", "tp=2", "dp=2", "fsdp=2"][: 4 if os.environ.get("TAPELINE_LONG") else 2]
)
def test_losses_are_those_of_one_device(here: Path, of_one_device: Any, mesh: str) -> None:
    compare(train(here, mesh=mesh), of_one_device)


def test_losses_of_an_adapter_are_those_of_one_device(here: Path) -> None:
    compare(train(here, lora=2, mesh="dp=2,tp=2"), train(here, lora=2, mesh=None))


def test_fsdp_cuts_parameters_and_moments() -> None:
    mesh = TrainingMesh(MeshShape.parse("fsdp=4"))
    trainer = Trainer(lambda trainable, frozen, x: (trainable["w"] @ x[0]).sum(), OptimizerOptions(1, 0.1), mesh)
    state = trainer.start({"w": np.ones((8, 3), np.float32), "b": np.ones(3, np.float32)})
    shapes = {leaf.shape: leaf.addressable_data(0).shape for leaf in jax.tree.leaves(state)}
    assert shapes == {(8, 3): (2, 3), (3,): (3,), (): ()}


def test_a_batch_that_a_mesh_does_not_divide_is_refused(here: Path) -> None:
    with pytest.raises(ConfigError, match="batch=3: the mesh dp=2 cuts a batch into 2 parts: give a multiple"):
        train(here, mesh="dp=2", batch=3)


def test_an_axis_that_does_not_divide_heads_is_refused(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"mesh tp=3: .* which tp=3 does not divide"):
        train(here, mesh="tp=3")
