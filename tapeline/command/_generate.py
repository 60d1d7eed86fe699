"""Generates text with a bundle.

generate --bundle DIR (--prompt TEXT | --token_ids 1,2,3) --max_new_tokens N
generate --bundle DIR --chat --prompt TEXT            the model's answer to one turn of a user's
generate --bundle DIR --chat                          a conversation: each line of stdin is a turn

A bundle that was exported with --positions=per_row takes several prompts, each with a flag of its own.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from absl import flags

import tapeline.text
from lang_core import InputError
from run_iree import DEVICES
from tapeline import cli
from tapeline.bundle import Bundle
from tapeline.running import (
    BundleBatch,
    BundleModel,
    BundlePromptMemory,
    GenerationOutput,
    GenerationStats,
    PromptCacheFile,
    ScoringBundle,
    dispatches,
    dumper_of,
    encoder_inputs,
    has_row_positions,
    let_workers_run,
    speculating,
)
from tapeline.text import Tokenizer, find_tokenizer, parse_token_ids
from transformer_core.generation import (
    Sampler,
    SamplingConfig,
    Speculation,
    Step,
    StopRule,
    generate,
    generate_batch,
    load_eos_ids,
)

FLAGS: Final = flags.FlagValues()

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "The bundle's directory.", required=True, flag_values=FLAGS)
_PROMPT: Final = flags.DEFINE_multi_string(
    "prompt", None, "The text to go on from; several with several flags.", flag_values=FLAGS
)
_TOKEN_IDS: Final = flags.DEFINE_multi_string("token_ids", None, "The same as token ids: 1,2,3.", flag_values=FLAGS)
_CHAT: Final = flags.DEFINE_bool(
    "chat", False, "The prompt is a user's turn, put into the model's chat template.", flag_values=FLAGS
)
_SYSTEM: Final = flags.DEFINE_string(
    "system", None, "With --chat: what the model is told before everything else.", flag_values=FLAGS
)
_INPUT: Final = flags.DEFINE_multi_string(
    "input", [], "NAME=FILE.npy, once per argument of encode, of a model that has an encoder.", flag_values=FLAGS
)
_MAX_NEW_TOKENS: Final = flags.DEFINE_integer("max_new_tokens", 64, "How many tokens at most.", flag_values=FLAGS)
_TEMPERATURE: Final = flags.DEFINE_float("temperature", 0.0, "0 takes the likeliest token.", flag_values=FLAGS)
_TOP_K: Final = flags.DEFINE_integer("top_k", 0, "Only the k likeliest tokens; 0 is all.", flag_values=FLAGS)
_TOP_P: Final = flags.DEFINE_float("top_p", 1.0, "Only the likeliest tokens that make up p.", flag_values=FLAGS)
_MIN_P: Final = flags.DEFINE_float(
    "min_p", 0.0, "Only tokens at least so likely, relative to the likeliest.", flag_values=FLAGS
)
_REPETITION_PENALTY: Final = flags.DEFINE_float(
    "repetition_penalty", 1.0, "Above 1 makes known tokens less likely.", flag_values=FLAGS
)
_SEED: Final = flags.DEFINE_integer("seed", 0, "Of the draws.", flag_values=FLAGS)
_IGNORE_EOS: Final = flags.DEFINE_bool("ignore_eos", False, "Go on after an end-of-sequence token.", flag_values=FLAGS)
_DEVICE: Final = flags.DEFINE_enum("device", "local-task", list(DEVICES), "The device.", flag_values=FLAGS)
_STATS: Final = flags.DEFINE_string("stats", None, "Write figures to this JSON file.", flag_values=FLAGS)
_LOGITS: Final = flags.DEFINE_string(
    "logits",
    None,
    "Write the logits, f32 [steps, V], or [prompts, steps, V] of several, to this .npy file.",
    flag_values=FLAGS,
)
_PROMPT_CACHE: Final = flags.DEFINE_string(
    "prompt_cache",
    None,
    "Begin with what this file holds of the prompt, and keep there what it lacks.",
    flag_values=FLAGS,
)
_SPECULATE: Final = flags.DEFINE_string(
    "speculate",
    None,
    "prompt_lookup[:N]: verify what followed the last N tokens (3) earlier in the text.",
    flag_values=FLAGS,
)
_DRAFT: Final = flags.DEFINE_string(
    "draft", None, "Verify what this bundle, of a smaller model, finds likeliest.", flag_values=FLAGS
)
_DRAFT_TOKENS: Final = flags.DEFINE_integer(
    "draft_tokens",
    None,
    "How many tokens are verified at once, at most; by default as many as score takes.",
    flag_values=FLAGS,
)
_DUMP: Final = flags.DEFINE_string(
    "dump", None, "Dump tensors into this directory, new or empty (docs/dump.md).", flag_values=FLAGS
)
_DUMP_LEVEL: Final = flags.DEFINE_integer(
    "dump_level",
    None,
    "0 nothing, 1 tags (the default), 2 also arguments and results, 3 figures of all of them.",
    flag_values=FLAGS,
)
_DUMP_LIMIT: Final = flags.DEFINE_string(
    "dump_limit",
    "256MiB,16GiB",
    "The largest tensor that is written, and how much in all; none is no limit.",
    flag_values=FLAGS,
)


def _prompt_ids(tokenizer: Tokenizer | None, vocabulary: int) -> list[Sequence[int]]:
    if _TOKEN_IDS.value is not None:
        return [parse_token_ids(ids, vocabulary) for ids in _TOKEN_IDS.value]
    if tokenizer is None:
        raise InputError(f"--prompt: {_BUNDLE.value} has no tokenizer: give --token_ids")
    return [tokenizer.encode(text, vocabulary) for text in _PROMPT.value or ()]


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
    elif len(_PROMPT.value or ()) > 1:
        raise InputError("--chat takes one --prompt: give the turns of a conversation as lines on stdin")
    elif _PROMPT.value is None and (_STATS.value or _LOGITS.value or _DUMP.value):
        raise InputError("--stats, --logits and --dump are of one answer: give --prompt")
    if _PROMPT_CACHE.value is not None and _DUMP.value is not None:
        raise InputError("--dump shows every call, and --prompt_cache leaves some out: give one of them")


def _turns() -> Iterator[str]:
    """What the user says: the prompt, or line after line of stdin."""
    if _PROMPT.value is not None:
        yield from _PROMPT.value
        return
    if sys.stdin.isatty():
        cli.say("one turn per line; the end of the input (Ctrl-D) ends the conversation")
    yield from (line.rstrip("\n") for line in sys.stdin if line.strip())


def _prompts(
    chat: "tapeline.text.Chat | None", tokenizer: Tokenizer | None, vocabulary: int
) -> Iterator[list[Sequence[int]]]:
    """What is answered together, one after the other."""
    if chat is None:
        yield _prompt_ids(tokenizer, vocabulary)
    else:
        for turn in _turns():
            yield [chat.ask(turn, vocabulary)]


def main() -> None:
    """Streams the generated text to stdout."""
    began = time.perf_counter()
    _check_flags()
    stats_file, logits_file = cli.output_file("stats", _STATS.value), cli.output_file("logits", _LOGITS.value)
    bundle = Bundle(cli.user_path(_BUNDLE.value))
    if not _CHAT.value and (_PROMPT.value is None) == (_TOKEN_IDS.value is None):
        raise InputError("give either --prompt or --token_ids")
    tokenizer = find_tokenizer(bundle.path)
    chat = tapeline.text.Chat.of(bundle.path, tokenizer, _SYSTEM.value) if _CHAT.value else None
    ends = load_eos_ids(bundle.path) | (chat.end_ids() if chat else frozenset())
    sampling, stop = _sampling(), StopRule(ends, _MAX_NEW_TOKENS.value, _IGNORE_EOS.value)
    draft = None if _DRAFT.value is None else cli.user_path(_DRAFT.value)
    given, kind = encoder_inputs(bundle, _INPUT.value), _kind(bundle)
    with (
        dumper_of(bundle, _DEVICE.value, _DUMP.value, _DUMP_LEVEL.value, _DUMP_LIMIT.value) as dumper,
        bundle.session(_DEVICE.value, dumper) as session,
        speculating(bundle, _DEVICE.value, _SPECULATE.value, draft, _DRAFT_TOKENS.value) as speculate,
    ):
        let_workers_run()
        model = kind(bundle, session, given)
        memory = BundlePromptMemory(model) if isinstance(model, BundleModel) else None
        prompt_cache = _prompt_cache(bundle, model, memory)
        for prompts in _prompts(chat, tokenizer, model.vocabulary):
            stats, output = GenerationStats(sum(map(len, prompts))), GenerationOutput(tokenizer, len(prompts))
            load_seconds = stats.started - began
            speculation = speculate(model) if speculate and isinstance(model, ScoringBundle) else None
            for row, step in _steps(model, prompts, sampling, stop, memory, speculation):
                output.push(row, step, keep=logits_file is not None)
                stats.token(session.counters, model.token_bytes)
            answer = output.finish()
            if prompt_cache is not None:
                prompt_cache.save()
            if chat is not None:
                chat.answered(answer)
                if memory is None:
                    model = kind(bundle, session, given)  # empty caches: the next prompt is the whole conversation
            if logits_file:
                _write_logits(logits_file, output)
            if stats_file:
                figures = stats.as_json(load_seconds, _DEVICE.value, memory, speculation)
                figures["dispatches"] = dispatches(bundle, _DEVICE.value)
                stats_file.write_text(json.dumps(figures, indent=2) + "\n")


def _write_logits(path: Path, output: GenerationOutput) -> None:
    with path.open("wb") as file:  # given a name, NumPy would add .npy
        np.save(file, output.logits())


def _kind(bundle: Bundle) -> type[BundleBatch] | type[BundleModel]:
    """How the bundle is used."""
    several = has_row_positions(bundle) or len(_PROMPT.value or _TOKEN_IDS.value or ()) > 1
    drafts = _SPECULATE.value is not None or _DRAFT.value is not None
    if several and drafts:
        raise InputError("--speculate and --draft go with one prompt and a bundle exported without --positions=per_row")
    return BundleBatch if several else ScoringBundle if drafts else BundleModel


def _prompt_cache(
    bundle: Bundle, model: BundleModel | BundleBatch, memory: BundlePromptMemory | None
) -> PromptCacheFile | None:
    path = cli.output_file("prompt_cache", _PROMPT_CACHE.value)
    if path is None:
        return None
    if memory is None or not isinstance(model, BundleModel):
        raise InputError(
            "--prompt_cache goes with one prompt and a bundle that was exported without --positions=per_row"
        )
    file = PromptCacheFile(path, bundle, _DEVICE.value, model, memory)
    file.load()
    return file


def _steps(
    model: BundleModel | BundleBatch,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingConfig,
    stop: StopRule,
    memory: BundlePromptMemory | None,
    speculation: Speculation | None,
) -> Iterator[tuple[int, Step]]:
    """The next tokens, each with the number of its prompt."""
    samplers = [Sampler(sampling, model.vocabulary) for _ in prompts]
    if isinstance(model, BundleBatch):
        yield from generate_batch(model, prompts, samplers, stop)
    else:
        steps = generate(model, prompts[0], samplers[0], stop, memory=memory, speculation=speculation)
        yield from ((0, step) for step in steps)
