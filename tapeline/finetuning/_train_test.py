"""Whole trainings of a small model: results, refusals, going on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import InputError, TapelineError
from tapeline.demo import write_demo_checkpoint
from transformer_core.checkpoints import Adapter, SafetensorsCheckpoint
from transformer_core.models import load_model

_TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
_OPTIONS: dict[str, Any] = {"steps": 4, "batch": 2, "sequence": 16, "save_every": 2, "learning_rate": 5e-3}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``model``, the demo model's first layer, and ``data.txt``."""
    directory = tmp_path_factory.mktemp("training")
    write_demo_checkpoint(directory / "model")
    path = directory / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 1}))
    (directory / "data.txt").write_text(_TEXT * 6)
    return directory


def train(here: Path, output: Path | str, **options: Any) -> tapeline.TrainedModel:
    return tapeline.train("model", "data.txt", output, base=here, **{**_OPTIONS, **options})


@pytest.fixture(scope="module")
def adapter(here: Path) -> tapeline.TrainedModel:
    return train(here, "adapter", lora=2, lora_targets=("q_proj", "down_proj"))


@pytest.fixture(scope="module")
def full(here: Path) -> tapeline.TrainedModel:
    return train(here, "full", accumulate=2, batch=1)


def test_the_loss_falls(adapter: tapeline.TrainedModel, full: tapeline.TrainedModel) -> None:
    for trained in (adapter, full):
        assert len(trained.losses) == 4
        assert trained.losses[-1] < trained.losses[0] - 0.05


def test_an_adapter_has_the_form_of_peft(here: Path, adapter: tapeline.TrainedModel) -> None:
    files = {"adapter_config.json", "adapter_model.safetensors", "loss.svg", "losses.jsonl", "training.json"}
    assert {path.name for path in adapter.path.iterdir()} == files
    config = json.loads((adapter.path / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["fan_in_fan_out"]) == (2, 4.0, False)
    with Adapter(adapter.path) as read:
        assert set(read.low_rank) == {f"model.layers.0.{name}" for name in ("self_attn.q_proj", "mlp.down_proj")}
        assert all(rank.scaling == 2.0 for rank in read.ranks.values())
        assert all(np.abs(read.file.read(roles["left"])).max() > 0 for roles in read.low_rank.values())


def test_a_checkpoint_has_the_form_of_its_source(here: Path, full: tapeline.TrainedModel) -> None:
    assert (full.path / "tokenizer.json").read_bytes() == (here / "model" / "tokenizer.json").read_bytes()
    assert json.loads((full.path / "config.json").read_text())["torch_dtype"] == "float32"
    with SafetensorsCheckpoint(full.path) as after, SafetensorsCheckpoint(here / "model") as before:
        assert set(after.keys()) == {path for path, _ in load_model(full.path).named_parameters()}
        changes = {key: np.abs(after.read(key) - before.read(key)).max() for key in after.keys()}  # noqa: SIM118
    assert all(0 < change < 0.1 for change in changes.values())


def test_the_report_says_what_was_done(adapter: tapeline.TrainedModel) -> None:
    report = json.loads((adapter.path / "training.json").read_text())
    assert report["options"]["lora_targets"] == ["q_proj", "down_proj"]
    assert report["parameters"] == {"trained": 2 * (64 + 64) + 2 * (64 + 160), "of": report["parameters"]["of"]}
    assert report["losses"]["last"] == adapter.losses[-1]
    lines = [json.loads(line) for line in (adapter.path / "losses.jsonl").read_text().splitlines()]
    assert lines == [{"step": step, "loss": loss} for step, loss in enumerate(adapter.losses, 1)]


def test_a_finished_training_is_replaced_as_a_whole(here: Path, adapter: tapeline.TrainedModel) -> None:
    again = train(here, "adapter", lora=2, lora_targets=("q_proj", "down_proj"), resume=True)
    assert again.losses == adapter.losses
    assert not (here / ".adapter.training").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora": 0}, "lora=0: give a number of at least 1"),
        ({"batch": 0}, "batch=0: give a number of at least 1"),
        ({"seed": -1}, "seed=-1: give a number of at least 0"),
        ({"lora": 2, "lora_alpha": 0.0}, r"lora_alpha=0\.0: give a number above 0"),
        ({"lora_alpha": 2.0}, r"lora_alpha=2\.0: is of an adapter: give its rank, lora, too"),
        ({"lora": 2, "lora_targets": ("q_prj",)}, "lora_targets=q_prj: not found among the linear layers; available: "),
        ({"lora": 65}, r"lora=65: model\.layers\.0\.self_attn\.q_proj is \[64, 64\]: give a rank of at most 64"),
        ({"steps": 0}, "steps=0: give a number at least 1"),
        ({"sequence": 4096}, "max_sequence: expected at most"),
        ({"sequence": 500}, r"sequence=500: the data have \d+ tokens, and a window is of 501"),
        ({"dtype": "f64"}, "dtype: expected one of f32, bf16; found 'f64'"),
        ({"mesh": "dp"}, "mesh 'dp': 'dp' is no axis with a size"),
        ({"mesh": "dp=64"}, "mesh dp=64: is of 64 devices, and JAX has"),
    ],
)
def test_bad_options_are_refused_before_any_work(here: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TapelineError, match=message):
        train(here, "refused", **options)
    assert not (here / "refused").exists()
    assert not (here / ".refused.training").exists()


def test_other_files_are_not_replaced(here: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files that are not of a training"):
        train(here, tmp_path)
    with pytest.raises(InputError, match="is no directory that can be written"):
        train(here, tmp_path / "notes.txt" / "below")


def test_an_encoder_is_no_language_model(here: Path, tmp_path: Path) -> None:
    config = {"architectures": ["BertModel"], "model_type": "bert", "vocab_size": 20, "hidden_size": 8}
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 16}
    more = {"type_vocab_size": 2, "layer_norm_eps": 1e-5, "hidden_act": "gelu", "pad_token_id": 0}
    write_demo_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, **sizes, **more}))
    with pytest.raises(InputError, match="BertModel is no causal language model, and only these train"):
        tapeline.train(tmp_path, here / "data.txt", tmp_path / "out", **_OPTIONS)


def test_going_on_with_other_options_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tapeline.finetuning._train._write", stop)
    with pytest.raises(KeyboardInterrupt):
        train(here, "stopped", lora=2, lora_targets=("q_proj",), steps=1)
    with pytest.raises(InputError, match="was begun with lora_targets=q_proj, now it is lora_targets=v_proj"):
        train(here, "stopped", lora=2, lora_targets=("v_proj",), steps=1, resume=True)
    with pytest.raises(InputError, match=r"was begun with seed=0, now it is seed=3: give the same, or begin anew"):
        train(here, "stopped", lora=2, lora_targets=("q_proj",), steps=1, seed=3, resume=True)
    monkeypatch.undo()
    assert len(train(here, "stopped", lora=2, lora_targets=("q_proj",), steps=1, resume=True).losses) == 1


def test_a_loss_that_is_no_number_ends_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = "run_jax.training.Trainer.step"
    monkeypatch.setattr(step, lambda self, state, *_: (state, float("nan")))
    with pytest.raises(
        tapeline.VerificationError, match="training: the loss of step 1 is nan: lower the learning rate"
    ):
        train(here, "broken", lora=2)
