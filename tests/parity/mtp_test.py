"""Multi-token prediction heads against the paper's equations, computed with transformers' layers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError, ConfigError, EagerExecutionContext
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.goldens.mtp_cases import MTP_CASES, checkpoint_weights, golden_path, mtp_case
from tests.parity._golden_models import empty_caches, relative_error
from transformer_core.checkpoints import SafetensorsCheckpoint, audit
from transformer_core.models import (
    DraftingLM,
    entry_points,
    load_model,
    stored_specs,
    tied_keys,
    unused_keys,
    weights_of,
)

_TOLERANCE = 2e-4
_NAMES = ("prefill", "decode", "verify", "draft")
_ALL = pytest.mark.parametrize("name", MTP_CASES)


class _Calls:
    """Entry points on caches that they share."""

    def __init__(self, model: Any, ctx: EagerExecutionContext, capacity: int) -> None:
        sizes: Any = {"sequence": 5, "max_sequence": capacity, "verify_tokens": 3}
        points = entry_points(model, names=_NAMES, **sizes)
        self.points: dict[str, Any] = dict(zip(_NAMES, points, strict=True))
        self.ctx, self.caches = ctx, empty_caches(points[0])

    def __call__(self, name: str, tokens: Any, *scalars: int) -> np.ndarray:
        given: Any = [np.asarray(value, np.int32) for value in (tokens, *scalars)]
        logits, *self.caches, _ = self.points[name](self.ctx, *given, *self.caches).values()
        return logits.numpy()

    def feed(self, tokens: np.ndarray) -> None:
        """Feeds a prompt of several lengths of calls, with padding at its end."""
        for start in range(0, len(tokens), 5):
            piece = tokens[start : start + 5]
            padded = np.full((1, 5), 7, np.int32)
            padded[0, : len(piece)] = piece
            self("prefill", padded, start, len(piece) - 1)


@contextmanager
def _opened(name: str, directory: Path, **changes: Any) -> Iterator[tuple[DraftingLM, EagerExecutionContext]]:
    case = mtp_case(name)
    (directory / "config.json").write_text(json.dumps({**case.config, **changes}))
    safetensors.numpy.save_file(checkpoint_weights(case), directory / "model.safetensors")
    model = load_model(directory, drafts=True)
    assert isinstance(model, DraftingLM)
    with SafetensorsCheckpoint(directory) as checkpoint:
        specs, tied = stored_specs(model, checkpoint), tied_keys(model, checkpoint)
        audit(checkpoint, specs, tied=tied, ignorable=unused_keys(model, checkpoint))
        yield model, EagerExecutionContext(weights_of(model, checkpoint))


@_ALL
def test_drafts_after_every_kind_of_call(name: str, tmp_path: Path) -> None:
    with np.load(golden_path(name)) as golden, _opened(name, tmp_path) as (model, ctx):
        tokens, expected = golden["tokens"][0], golden["logits"][0]
        calls = _Calls(model, ctx, len(tokens) + 4)

        def check(position: int) -> None:
            logits = calls("draft", [[tokens[position]]], position)
            assert relative_error(logits[0], expected[position - 1]) < _TOLERANCE, position

        calls.feed(tokens[:12])
        for position in (12, 13):
            check(position)
            calls("decode", [tokens[position : position + 1]], position)
        check(14)
        calls("verify", [tokens[14:17]], 14, 2)
        check(17)
        calls("verify", [[tokens[17], 3, 3]], 17, 0)  # rejected tokens leave nothing behind
        check(18)


@_ALL
def test_guesses_from_guesses(name: str, tmp_path: Path) -> None:
    with np.load(golden_path(name)) as golden, _opened(name, tmp_path) as (model, ctx):
        tokens, further = golden["tokens"][0], golden["further"][0]
        calls = _Calls(model, ctx, len(tokens) + 4)
        calls.feed(tokens[:-1])
        token, position = tokens[-1], len(tokens) - 1
        for expected in further:
            logits = calls("draft", [[token]], position)
            assert relative_error(logits[0], expected) < _TOLERANCE
            token, position = int(logits[0].argmax()), position + 1


@_ALL
def test_the_model_itself_says_what_it_says_without(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    prompt = golden.prompt[0].astype(np.int32)
    with _opened(name, tmp_path) as (model, ctx):
        calls = _Calls(model, ctx, len(prompt) + 8)
        calls.feed(prompt)
        for step, token in enumerate(golden.tokens[0][:3].tolist()):
            calls("draft", [[token]], len(prompt) + step)
            logits = calls("decode", [[token]], len(prompt) + step)
            assert relative_error(logits[0], golden.logits[0, step + 1]) < _TOLERANCE
        logits = model(ctx, golden.prompt.astype(np.int32))
        assert relative_error(logits, golden.prompt_logits) < _TOLERANCE


def test_models_that_cannot_draft(tmp_path: Path) -> None:
    case = CASES["llama_gqa"]
    (tmp_path / "config.json").write_text(json.dumps(case.config))
    with pytest.raises(ConfigError, match=r"draft: LlamaForCausalLM needs one multi-token prediction head .* has 0"):
        load_model(tmp_path, drafts=True)
    config = {**CASES["deepseek_v3"].config, "num_nextn_predict_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"its configuration has 2: export without draft"):
        load_model(tmp_path, drafts=True)
    (tmp_path / "config.json").write_text(json.dumps(CASES["qwen3_next"].config))
    with pytest.raises(ConfigError, match=r"num_layers: expected 4, all of them, .* follows the last; found 2"):
        load_model(tmp_path, num_layers=2, drafts=True)
    model = load_model(tmp_path, drafts=True)
    with pytest.raises(ConfigError, match=r"positions: expected shared, for draft works on one prompt; found per_row"):
        entry_points(model, positions="per_row")
    with pytest.raises(ConfigError, match=r"slots: expected none with draft, which works on one prompt; found 2"):
        entry_points(model, slots=2)


def test_a_checkpoint_without_the_head(tmp_path: Path) -> None:
    case = CASES["qwen3_next"]
    (tmp_path / "config.json").write_text(json.dumps(case.config))
    weights = {key: array for key, array in checkpoint_weights(case).items() if not key.startswith("mtp.")}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors")
    model = load_model(tmp_path, drafts=True)
    with (
        SafetensorsCheckpoint(tmp_path) as checkpoint,
        pytest.raises(CheckpointError, match=r"'mtp.pre_fc_norm_embedding.weight' is missing"),
    ):
        audit(checkpoint, stored_specs(model, checkpoint), ignorable=unused_keys(model, checkpoint))
