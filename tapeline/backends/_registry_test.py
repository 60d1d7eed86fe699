"""Engines that other packages register, beside ours."""

from pathlib import Path
from typing import Any

import pytest

import tapeline
from lang_core import ChoiceError, ConfigError, InputError, MeshShape
from tapeline.backends import (
    ENGINES,
    Engine,
    Place,
    _registry,
    all_devices,
    engine_named,
    engine_names,
    register_engine,
)
from tapeline.bundle import Bundle


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test register engines that the next one does not see."""
    monkeypatch.setattr(_registry, "_ENGINES", dict(_registry._ENGINES))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "bundle"
    options: Any = {"num_layers": 1, "sequence": 4, "max_sequence": 24, "verify": "none", "target": ["llvm-cpu"]}
    tapeline.export("demo", path, **options)
    return path


def _unused(bundle: Bundle, place: Place) -> Any:
    raise AssertionError(f"{bundle} {place}")


def test_ours_are_registered_first() -> None:
    assert engine_names()[:2] == ENGINES == ("iree", "jax")
    register_engine(Engine("acme", ("board", "cuda"), _unused))
    assert engine_names()[-1] == "acme"
    assert {"local-task", "tpu", "board"} <= set(all_devices())
    assert all_devices().count("cuda") == 1


def test_a_registered_engine_opens_bundles_and_is_chosen_by_its_name(demo: Path) -> None:
    opened: list[Place] = []

    def in_iree(bundle: Bundle, place: Place) -> Any:
        opened.append(place)
        return bundle.session("local-sync")

    register_engine(Engine("acme", ("board", "other"), in_iree))
    with tapeline.load(demo, engine="acme", device="other") as model, tapeline.load(demo) as ours:
        call: Any = {"token_ids": [5, 6, 7], "max_new_tokens": 4, "ignore_eos": True}
        assert model.generate(**call).token_ids == ours.generate(**call).token_ids
    assert opened == [Place("acme", "other")]
    assert Place("acme").name == "board"
    assert tapeline.compare_bundles(demo, engine="acme", reference_engine="iree").first is None


def test_a_name_stands_for_one_engine() -> None:
    with pytest.raises(ConfigError, match="engine 'jax' is registered already: a name stands for one engine"):
        register_engine(Engine("jax", ("cpu",), _unused))


@pytest.mark.parametrize("name", ["", "Acme", "acme engine", "1st", "--acme"])
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the name begins with a lower-case letter"):
        Engine(name, ("board",), _unused)


def test_an_engine_without_devices_is_refused() -> None:
    with pytest.raises(ConfigError, match="engine 'acme': name one device at least: the first is the default"):
        Engine("acme", (), _unused)


def test_an_engine_is_asked_for_what_it_can_do() -> None:
    register_engine(Engine("acme", ("board",), _unused))
    register_engine(Engine("apex", ("grid",), _unused, meshes=True, checkpoints=True))
    with pytest.raises(ChoiceError, match=r"engine: expected one of iree, jax, .*acme.*; found 'acne'; did you mean"):
        Place("acne")
    with pytest.raises(ChoiceError, match="found 'tpu'"):
        engine_named("tpu")
    with pytest.raises(InputError, match="device=vulkan: not a device of engine=acme; available: board: with engine=i"):
        Place("acme", "vulkan")
    with pytest.raises(InputError, match=r"mesh=tp=2 goes with engine=jax or .*apex: acme runs a bundle on one device"):
        Place("acme", mesh=MeshShape.parse("tp=2"))
    with pytest.raises(InputError, match=r"checkpoint=here goes with engine=jax, eager or .*apex: acme"):
        Place("acme", checkpoint=Path("here"))
    with pytest.raises(InputError, match="`dump` goes with engine=iree"):
        Place("apex").dumps()
    assert Place("apex", mesh=MeshShape.parse("tp=2")).name == "grid"


def test_cpu_and_gpu_are_devices_of_every_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"cuda": False, "vulkan": False}
    monkeypatch.setattr(_registry, "available", lambda name: (present[name], "absent"))
    monkeypatch.setattr(_registry, "vulkan_device_name", lambda: "NVIDIA H100")
    assert Place("iree", "cpu") == Place("iree", "local-task")
    assert (Place("jax", "cpu").device, Place("jax", "gpu").device) == ("cpu", "cuda")
    with pytest.raises(InputError, match=r"device=gpu: this machine has no GPU .*cuda: absent; vulkan: absent"):
        Place("iree", "gpu")
    present["vulkan"] = True
    assert Place("iree", "gpu").device == "vulkan"
    monkeypatch.setattr(_registry, "vulkan_device_name", lambda: "llvmpipe (LLVM 15.0.6, 256 bits)")
    with pytest.raises(InputError, match="no GPU"):
        Place("iree", "gpu")
    present["cuda"] = True
    assert Place("iree", "gpu").device == "cuda"
    assert "gpu" not in all_devices()
