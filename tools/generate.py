"""Generates text with a bundle.

generate --bundle DIR (--prompt TEXT | --token_ids 1,2,3) --max_new_tokens N
generate --bundle DIR --chat --prompt TEXT            the model's answer to one turn of a user's
generate --bundle DIR --chat                          a conversation: each line of stdin is a turn
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from absl import flags

from compile_hlo.bundle import Bundle
from compile_hlo.iree import DEVICES
from lang_core import InputError
from tools import cli
from tools.running import BundleModel, GenerationStats, dumper_of
from tools.text import Chat, IdStream, TextStream, Tokenizer, find_tokenizer, parse_token_ids
from transformer_core.generation import Sampler, SamplingConfig, Step, StopRule, generate, load_eos_ids

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "The bundle's directory.", required=True)
_PROMPT: Final = flags.DEFINE_string("prompt", None, "The text to go on from.")
_TOKEN_IDS: Final = flags.DEFINE_string("token_ids", None, "The same as token ids: 1,2,3.")
_CHAT: Final = flags.DEFINE_bool("chat", False, "The prompt is a user's turn, put into the model's chat template.")
_SYSTEM: Final = flags.DEFINE_string("system", None, "With --chat: what the model is told before everything else.")
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


def _check_flags() -> None:
    if not _CHAT.value:
        if _SYSTEM.value is not None:
            raise InputError("--system goes with --chat")
    elif _TOKEN_IDS.value is not None:
        raise InputError("--chat takes text: give --prompt, or lines on stdin, instead of --token_ids")
    elif _PROMPT.value is None and (_STATS.value or _LOGITS.value or _DUMP.value):
        raise InputError("--stats, --logits and --dump are of one answer: give --prompt")


def _turns() -> Iterator[str]:
    """What the user says: the prompt, or line after line of stdin."""
    if _PROMPT.value is not None:
        yield _PROMPT.value
        return
    if sys.stdin.isatty():
        cli.say("one turn per line; the end of the input (Ctrl-D) ends the conversation")
    yield from (line.rstrip("\n") for line in sys.stdin if line.strip())


def _prompts(chat: Chat | None, tokenizer: Tokenizer | None, vocabulary: int) -> Iterator[Sequence[int]]:
    if chat is None:
        yield _prompt_ids(tokenizer, vocabulary)
    else:
        yield from (chat.ask(turn, vocabulary) for turn in _turns())


def main() -> None:
    """Streams the generated text to stdout."""
    began = time.perf_counter()
    _check_flags()
    stats_file, logits_file = cli.output_file("stats", _STATS.value), cli.output_file("logits", _LOGITS.value)
    bundle = Bundle(cli.user_path(_BUNDLE.value))
    tokenizer = find_tokenizer(bundle.path)
    chat = Chat.of(bundle.path, tokenizer, _SYSTEM.value) if _CHAT.value else None
    ends = load_eos_ids(bundle.path) | (chat.end_ids() if chat else frozenset())
    sampling, stop = _sampling(), StopRule(ends, _MAX_NEW_TOKENS.value, _IGNORE_EOS.value)
    with (
        dumper_of(bundle, _DEVICE.value, _DUMP.value, _DUMP_LEVEL.value, _DUMP_LIMIT.value) as dumper,
        bundle.session(_DEVICE.value, dumper) as session,
    ):
        model = BundleModel(bundle, session)
        for prompt in _prompts(chat, tokenizer, model.vocabulary):
            stats, rows = GenerationStats(len(prompt)), []
            load_seconds = stats.started - began

            def note(step: Step, stats: GenerationStats = stats, rows: list[np.ndarray] = rows) -> None:
                stats.token(session.counters)
                if logits_file:
                    rows.append(step.logits)

            steps = generate(model, prompt, Sampler(sampling, model.vocabulary), stop)
            answer = _streamed(steps, tokenizer.stream() if tokenizer else IdStream(), note)
            if chat is not None:
                chat.answered(answer)
                model = BundleModel(bundle, session)  # empty caches: the next turn's prompt is the whole conversation
            if logits_file:
                with logits_file.open("wb") as file:  # given a name, NumPy would add .npy
                    np.save(file, np.stack(rows))
            if stats_file:
                figures = stats.as_json(load_seconds, _DEVICE.value)
                stats_file.write_text(json.dumps(figures, indent=2) + "\n")


def _streamed(steps: Iterable[Step], stream: TextStream | IdStream, note: Callable[[Step], None]) -> str:
    """Shows the steps' text as it comes; returns all of it."""
    pieces: list[str] = []
    for step in steps:
        note(step)
        if step.ended != "eos":
            pieces.append(_show(stream.push(step.token_id)))
    pieces.append(_show(stream.finish()))
    _show("\n")
    return "".join(pieces)


def _show(text: str) -> str:
    sys.stdout.write(text)
    sys.stdout.flush()
    return text


if __name__ == "__main__":
    cli.run(main)
