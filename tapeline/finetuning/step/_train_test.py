from collections.abc import Iterator

import numpy as np
import pytest

from lang_core import InputError, VerificationError
from run_iree import Session, target_named
from tapeline.finetuning.step import Schedule, Windows, open_step, train, training_step
from transformer_core.models import DecoderConfig, DecoderLM

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 8,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
}


def test_windows_begin_as_prompts_do_and_run_over_the_end() -> None:
    windows = Windows([[5, 6, 7], [4]], begin=0, end=1, length=6, seed=3)
    drawn = windows.draw(64)
    assert (windows.tokens, drawn.shape, drawn.dtype) == (8, (64, 6), np.int32)
    assert (drawn[:, 0] == 0).all()
    stream = [0, 5, 6, 7, 1, 0, 4, 1] * 2
    places = {tuple(stream[start + 1 : start + 6]): start for start in range(8)}
    starts = [places[tuple(row[1:].tolist())] for row in drawn]
    assert set(starts) == set(range(8))
    assert 0.4 < np.isin(starts, [0, 5]).mean() < 0.9


def test_windows_are_the_same_for_a_seed() -> None:
    one, other, third = (Windows([[5, 6, 7], [4]], 0, 1, 6, seed).draw(8).tolist() for seed in (1, 1, 2))
    assert one == other != third


@pytest.mark.parametrize("documents", [[], [[5], []]])
def test_there_must_be_documents(documents: list[list[int]]) -> None:
    with pytest.raises(InputError, match="training needs documents with tokens"):
        Windows(documents, 0, 1, 6)


def test_the_rate_rises_and_falls() -> None:
    schedule = Schedule(steps=10, peak=2.0, warmup=4)
    rates = [schedule.rate(step) for step in range(1, 11)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4:] == pytest.approx([2 * left / 7 for left in (6, 5, 4, 3, 2, 1)])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    step = training_step(DecoderLM(DecoderConfig.from_hf(CONFIG)), batch=3, sequence=7)
    with open_step(step, tmp_path_factory.mktemp("train"), target_named("llvm-cpu"), "local-task") as opened:
        yield opened


def initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    specs = {path: p.spec for path, p in DecoderLM(DecoderConfig.from_hf(CONFIG)).named_parameters()}
    return {path: (rng.standard_normal(spec.shape) / 5).astype(np.float32) for path, spec in specs.items()}


def test_a_cycle_is_learned(session: Session) -> None:
    windows = Windows([[2, 3, 4, 5, 6, 7]], 0, 1, 8)
    told: list[int] = []
    trained, losses = train(
        session, initial(), lambda: windows.draw(3), Schedule(60, 0.03, 5), lambda step, loss: told.append(step)
    )
    assert session.counters.bytes_guarded == 0
    assert told == list(range(1, 61))
    assert list(trained) == list(initial())
    assert losses[0] > 1.5
    assert np.mean(losses[-5:]) < 0.7  # what follows the first token, anywhere in a cycle, is not to be known


def test_a_loss_that_is_no_number_ends_it(session: Session) -> None:
    broken = {path: np.full_like(array, np.nan) for path, array in initial().items()}
    ids = np.zeros((3, 8), np.int32)
    message = "training: the loss of step 1 is nan: lower the learning rate"
    with pytest.raises(VerificationError, match=message):
        train(session, broken, lambda: ids, Schedule(2, 0.1, 1))
