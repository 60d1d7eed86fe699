"""Hold drawn variants of a family to transformers: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.draw_families --family qwen3_moe --count 100

Each variant is a config.json drawn from the family's space, with random weights that transformers saves. Its logits of
a prompt and of cached greedy steps are compared with those of the eager forward and the cached decode.
"""

import argparse
import json
import random
import sys
import tempfile
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from lang_core import EagerExecutionContext, InputError
from tests.goldens import (
    _drawn_spaces_bert,
    _drawn_spaces_core,
    _drawn_spaces_further,
    _drawn_spaces_further_kinds,
    _drawn_spaces_gemma,
    _drawn_spaces_gpt,
    _drawn_spaces_hybrids,
    _drawn_spaces_llama_kinds,
    _drawn_spaces_moe,
    _drawn_spaces_newer,
    _drawn_spaces_states,
)
from tests.goldens._case_types import ATTENTION, Config
from tests.goldens._drawn_space_types import Space, draw
from tests.goldens._written_shapes import COMPUTED
from tests.goldens.draw_greedy import OWN_POSITIONS, greedy, own_cache
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import entry_points, load_model, weights_of

SPACES: Final[dict[str, Space]] = {
    **_drawn_spaces_bert.SPACES,
    **_drawn_spaces_core.SPACES,
    **_drawn_spaces_further.SPACES,
    **_drawn_spaces_further_kinds.SPACES,
    **_drawn_spaces_gemma.SPACES,
    **_drawn_spaces_gpt.SPACES,
    **_drawn_spaces_hybrids.SPACES,
    **_drawn_spaces_llama_kinds.SPACES,
    **_drawn_spaces_moe.SPACES,
    **_drawn_spaces_newer.SPACES,
    **_drawn_spaces_states.SPACES,
}
TOLERANCE: Final = 2e-4
_STEPS: Final = 6
_TABLES: Final = ".encoder.embed_positions.weight"  # RoFormer's, of sines and cosines


@dataclass(frozen=True)
class Outcome:
    """Comparison of one variant.

    Attributes:
        kind: ``equal``, ``refused`` for what the input is, ``differs``, ``failed`` with any other error, or
            ``not made``, for transformers takes the config not or computes no finite logits.
        reason: error, or where the results part.
        error: greatest difference, relative to the greatest logit.
    """

    kind: str
    reason: str = ""
    error: float = 0.0


@dataclass(frozen=True)
class Expected:
    """Results of transformers: prompt [B, T], tokens [B, steps], logits [B, steps, V], prompt_logits [B, T, V]."""

    prompt: np.ndarray
    tokens: np.ndarray
    logits: np.ndarray
    prompt_logits: np.ndarray


Make = Callable[[Path, Config, random.Random], Any]
"""Writes a checkpoint of a config below a directory, and returns transformers' results."""
Compare = Callable[[Path, Any], Outcome]
"""Compares these with ours."""


def main() -> int:
    """Compare the variants asked for; 1 where one differs or fails."""
    options = options_of(__doc__, SPACES)
    return draw_all(options.family, SPACES[options.family], options, expected_of, compared)


def draw_all(family: str, space: Space, options: argparse.Namespace, make: Make, compare: Compare) -> int:
    """Compares drawn variants of a family and prints what comes of them; 1 where one differs or fails."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    numbers = range(options.count) if options.only is None else options.only
    outcomes: dict[int, Outcome] = {}
    for number in numbers:
        rng = random.Random(label := f"{family}:{options.seed}:{number}")
        outcomes[number] = outcome_of(draw(space, rng), rng, make, compare, label)
    counts = Counter(outcome.kind for outcome in outcomes.values())
    for kind in ("not made", "refused"):
        for reason, count in Counter(o.reason for o in outcomes.values() if o.kind == kind).most_common():
            print(f"  {kind}, {count}: {reason}")
    greatest = max((o.error for o in outcomes.values() if o.kind == "equal"), default=0.0)
    summary = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"{family}: {summary}; greatest error of equal ones {greatest:.2g}")
    return 1 if counts["differs"] or counts["failed"] else 0


def options_of(description: str | None, spaces: Mapping[str, Space]) -> argparse.Namespace:
    """Parses the flags of this script, and of others that draw."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", required=True, help="architecture or model type; available: " + ", ".join(spaces))
    parser.add_argument("--count", type=int, default=100, help="number of variants")
    parser.add_argument("--seed", default="0", help="seed of the draws")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the variants to repeat")
    options = parser.parse_args()
    names = [family for family, space in spaces.items() if options.family in (family, *space["model_type"])]
    if not names:
        raise SystemExit(f"family {options.family!r} not found; available: {', '.join(spaces)}")
    options.family = names[0]
    return options


def outcome_of(config: Config, rng: random.Random, make: Make, compare: Compare, label: str) -> Outcome:
    """Compares one variant; prints it with its label where it differs or fails."""
    with tempfile.TemporaryDirectory() as name:
        try:
            expected = make(Path(name), config, rng)
        except Exception as error:  # noqa: BLE001 - whatever a config does to transformers
            return Outcome("not made", f"{type(error).__name__}: {str(error).splitlines()[-1:]}")
        try:
            outcome = compare(Path(name), expected)
        except InputError as error:
            return Outcome("refused", str(error).replace(name, "."))
        except Exception:  # noqa: BLE001 - reported, with the config, as the fault that it is
            outcome = Outcome("failed", traceback.format_exc())
        if outcome.kind != "equal":
            written = json.loads((Path(name) / "config.json").read_text())
            print(f"{label}: {outcome.kind}: {outcome.reason}\n{json.dumps(written)}")
    return outcome


def expected_of(directory: Path, config: Config, rng: random.Random) -> Expected:
    """Writes a checkpoint of the config as drawn or, by turns, as transformers writes it; returns its results."""
    path = directory / "config.json"
    path.write_text(json.dumps(config))
    read = AutoConfig.from_pretrained(directory)
    attention = ATTENTION.get(read.model_type, "eager")
    implementation: dict[str, Any] = {"attn_implementation": attention, "experts_implementation": "eager"}
    made = AutoModelForCausalLM.from_config(read, dtype=torch.float32, **implementation)
    randomize(made, rng.randrange(1 << 32))
    made.save_pretrained(directory)
    if rng.random() < 0.5:
        path.write_text(json.dumps(config))
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **implementation).eval()
    vocabulary = model.get_input_embeddings().weight.shape[0]
    batch, length = rng.randint(1, 2), rng.randint(3, 12)
    prompt = np.array([[rng.randrange(vocabulary) for _ in range(length)] for _ in range(batch)], np.int64)
    expected = _run(model, prompt)
    if not np.isfinite(expected.logits).all():
        raise ValueError("transformers computes logits that are not finite")
    return expected


def randomize(model: Any, seed: int) -> None:
    """Moves every weight and stored buffer: matrices to about 1 / sqrt(inputs), vectors around their first values."""
    for key, value in model.state_dict().items():
        if not value.is_floating_point() or key.endswith((_TABLES, *COMPUTED)):
            continue
        generator = torch.Generator().manual_seed((seed + zlib.crc32(key.encode())) % (1 << 62))
        if value.dim() < 2:
            value.add_(0.5 * (torch.rand(value.shape, generator=generator) - 0.5))
        else:
            inputs = value[0].numel() if value.dim() == 3 and value.shape[1] == 1 else value.shape[-1]
            value.copy_(torch.randn(value.shape, generator=generator) * (1.5 / inputs) ** 0.5)
    model.tie_weights()


def _run(model: Any, prompt: np.ndarray) -> Expected:
    ids = torch.from_numpy(prompt)
    prompt_logits = model(ids, use_cache=False).logits.numpy()
    if model.config.model_type in OWN_POSITIONS:
        return Expected(prompt, *greedy(model, prompt, _STEPS), prompt_logits)
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    options: dict[str, Any] = {"do_sample": False, "use_cache": True, "max_new_tokens": _STEPS}
    if model.config.model_type == "minimax":
        options["past_key_values"] = own_cache(model)
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), output_logits=True, return_dict_in_generate=True, **options
    )
    tokens = made.sequences[:, prompt.shape[1] :].numpy()
    return Expected(prompt, tokens, torch.stack(made.logits, dim=1).numpy(), prompt_logits)


def compared(directory: Path, expected: Expected) -> Outcome:
    batch, length = expected.prompt.shape
    prompt: Any = expected.prompt.astype(np.int32)
    model = load_model(directory)
    with SafetensorsCheckpoint(directory) as weights:
        ctx = EagerExecutionContext(weights_of(model, weights))
        worst = error_of(model(ctx, prompt), expected.prompt_logits)
        if not worst < TOLERANCE:
            return Outcome("differs", f"forward, by {worst:.2g}")
        sizes: Any = {"batch": batch, "sequence": length, "max_sequence": length + _STEPS}
        prefill, decode = entry_points(model, names=("prefill", "decode"), **sizes)
        caches = [np.zeros(a.spec.shape, a.spec.dtype.numpy) for a in prefill.arguments if a.alias_result]
        further: Any = [_scalar(0)] if any(argument.name == "length" for argument in prefill.arguments) else []
        results: dict[str, Any] = dict(prefill(ctx, prompt, _scalar(0), _scalar(length - 1), *further, *caches))
        for step in range(_STEPS):
            logits, chosen = results.pop("logits").numpy(), results.pop("next_ids").numpy()
            worst = max(worst, error_of(logits, expected.logits[:, step]))
            if not worst < TOLERANCE:
                return Outcome("differs", f"step {step}, by {worst:.2g}")
            if not _same_choice(chosen, expected.logits[:, step]):
                return Outcome("differs", f"step {step}: chose {chosen}")
            given: Any = expected.tokens[:, step : step + 1].astype(np.int32)
            if step + 1 < _STEPS:
                results = dict(decode(ctx, given, _scalar(length + step), *further, *results.values()))
    return Outcome("equal", error=worst)


def _scalar(value: int) -> Any:
    return np.array(value, np.int32)


def error_of(actual: Any, expected: np.ndarray) -> float:
    """Returns the greatest difference, relative to the greatest expected value."""
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max())


def _same_choice(chosen: np.ndarray, logits: np.ndarray) -> bool:
    """Returns whether the choices [B] are the greatest of logits [B, V], or within the tolerance of them."""
    best = logits.max(-1)
    return bool((best - np.take_along_axis(logits, chosen[:, None], 1)[:, 0] <= TOLERANCE * np.abs(logits).max()).all())


if __name__ == "__main__":
    sys.exit(main())
