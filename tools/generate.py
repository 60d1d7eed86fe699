"""Generates text with a bundle.

generate --bundle DIR (--prompt TEXT | --token_ids 1,2,3) --max_new_tokens N
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Final

import numpy as np
from absl import flags

from compile_hlo.bundle import Bundle
from compile_hlo.iree import DEVICES
from lang_core import InputError
from tools import cli
from tools.running import BundleModel, GenerationStats, dumper_of
from tools.text import IdStream, TextStream, Tokenizer, find_tokenizer, parse_token_ids
from transformer_core.generation import Sampler, SamplingConfig, StopRule, generate, load_eos_ids

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "The bundle's directory.", required=True)
_PROMPT: Final = flags.DEFINE_string("prompt", None, "The text to go on from.")
_TOKEN_IDS: Final = flags.DEFINE_string("token_ids", None, "The same as token ids: 1,2,3.")
_MAX_NEW_TOKENS: Final = flags.DEFINE_integer("max_new_tokens", 64, "How many tokens at most.")
_TEMPERATURE: Final = flags.DEFINE_float("temperature", 0.0, "0 takes the likeliest token.")
_TOP_K: Final = flags.DEFINE_integer("top_k", 0, "Only the k likeliest tokens; 0 is all.")
_TOP_P: Final = flags.DEFINE_float("top_p", 1.0, "Only the likeliest tokens that make up p.")
_MIN_P: Final = flags.DEFINE_float("min_p", 0.0, "Only tokens at least so likely, relative to the likeliest.")
_REPETITION_PENALTY: Final = flags.DEFINE_float("repetition_penalty", 1.0, "Above 1 makes known tokens less likely.")
_SEED: Final = flags.DEFINE_integer("seed", 0, "Of the draws.")
_IGNORE_EOS: Final = flags.DEFINE_bool("ignore_eos", False, "Go on after an end-of-sequence token.")
_DEVICE: Final = flags.DEFINE_enum("device", "local-task", list(DEVICES), "The device.")
_STATS: Final = flags.DEFINE_string("stats", None, "Write figures to this JSON file.")
_LOGITS: Final = flags.DEFINE_string("logits", None, "Write the logits, f32 [steps, V], to this .npy file.")
_DUMP: Final = flags.DEFINE_string("dump", None, "Dump tensors into this directory, new or empty (docs/dump.md).")
_DUMP_LEVEL: Final = flags.DEFINE_integer(
    "dump_level", None, "0 nothing, 1 tags (the default), 2 also arguments and results, 3 figures of all of them."
)
_DUMP_LIMIT: Final = flags.DEFINE_string(
    "dump_limit", "256MiB,16GiB", "The largest tensor that is written, and how much in all; none is no limit."
)


def _prompt_ids(tokenizer: Tokenizer | None, vocabulary: int) -> Sequence[int]:
    if (_PROMPT.value is None) == (_TOKEN_IDS.value is None):
        raise InputError("give either --prompt or --token_ids")
    if _TOKEN_IDS.value is not None:
        return parse_token_ids(_TOKEN_IDS.value, vocabulary)
    if tokenizer is None:
        raise InputError(f"--prompt: {_BUNDLE.value} has no tokenizer: give --token_ids")
    return tokenizer.encode(_PROMPT.value or "", vocabulary)


def _sampling() -> SamplingConfig:
    return SamplingConfig(
        temperature=_TEMPERATURE.value,
        top_k=_TOP_K.value,
        top_p=_TOP_P.value,
        min_p=_MIN_P.value,
        repetition_penalty=_REPETITION_PENALTY.value,
        seed=_SEED.value,
    )


def main() -> None:
    """Streams the generated text to stdout."""
    began = time.perf_counter()
    stats_file, logits_file = cli.output_file("stats", _STATS.value), cli.output_file("logits", _LOGITS.value)
    bundle = Bundle(cli.user_path(_BUNDLE.value))
    sampling = _sampling()
    stop = StopRule(load_eos_ids(bundle.path), _MAX_NEW_TOKENS.value, _IGNORE_EOS.value)
    tokenizer = find_tokenizer(bundle.path)
    with (
        dumper_of(bundle, _DEVICE.value, _DUMP.value, _DUMP_LEVEL.value, _DUMP_LIMIT.value) as dumper,
        bundle.session(_DEVICE.value, dumper) as session,
    ):
        model = BundleModel(bundle, session)
        prompt = _prompt_ids(tokenizer, model.vocabulary)
        sampler = Sampler(sampling, model.vocabulary)
        stream: TextStream | IdStream = tokenizer.stream() if tokenizer else IdStream()
        stats, rows = GenerationStats(len(prompt)), []
        load_seconds = stats.started - began
        for step in generate(model, prompt, sampler, stop):
            stats.token(session.counters)
            if logits_file:
                rows.append(step.logits)
            if step.ended != "eos":
                _show(stream.push(step.token_id))
        _show(stream.finish() + "\n")
    if logits_file:
        with logits_file.open("wb") as file:  # given a name, NumPy would add .npy
            np.save(file, np.stack(rows))
    if stats_file:
        figures = stats.as_json(load_seconds, _DEVICE.value)
        stats_file.write_text(json.dumps(figures, indent=2) + "\n")


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    cli.run(main)
