"""Generates text with a bundle.

generate BUNDLE (--prompt TEXT | --token_ids 1,2,3) --max_new_tokens N
generate BUNDLE --chat --prompt TEXT            the model's answer to one turn of a user's
generate BUNDLE --chat                          a conversation: each line of stdin is a turn
generate BUNDLE --chat --prompt TEXT --image FILE    the same about a picture, with a bundle that sees
generate MODEL ...                              the same with a model, which is exported into the cache first

A bundle that was exported with --positions=per_row takes several prompts, each with a flag of its own.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from absl import flags

import tapeline
from lang_core import InputError
from tapeline.cli import TerminalProgress, output_file, say, user_path
from tapeline.command._dump_flags import define_dump_flags
from tapeline.command._flags import flag_translator
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._model_flags import define_model_flags
from tapeline.command._output import GenerationOutput
from tapeline.command._place_flags import define_place_flags
from tapeline.command._turns import Turns, stoppable
from tapeline.running import (
    GenerateKeywords,
    GenerationStats,
    LoadedModel,
    TokenStream,
    dispatches,
    encoder_inputs,
    let_workers_run,
)
from tapeline.text import parse_token_ids

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("model", "bundle"),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "The bundle's directory.", flag_values=FLAGS)
_MODEL: Final = define_model_flags(FLAGS)
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
_IMAGE: Final = flags.DEFINE_multi_string(
    "image",
    [],
    "An image file, once for each <image> in the prompt; with --chat, before the first turn.",
    flag_values=FLAGS,
)
_MAX_NEW_TOKENS: Final = flags.DEFINE_integer("max_new_tokens", 64, "Largest number of new tokens.", flag_values=FLAGS)
_TEMPERATURE: Final = flags.DEFINE_float("temperature", 0.0, "0 takes the likeliest token.", flag_values=FLAGS)
_TOP_K: Final = flags.DEFINE_integer("top_k", 0, "Only the k likeliest tokens; 0 is all.", flag_values=FLAGS)
_TOP_P: Final = flags.DEFINE_float("top_p", 1.0, "Only the likeliest tokens that make up p.", flag_values=FLAGS)
_MIN_P: Final = flags.DEFINE_float(
    "min_p", 0.0, "Only tokens at least so likely, relative to the likeliest.", flag_values=FLAGS
)
_REPETITION_PENALTY: Final = flags.DEFINE_float(
    "repetition_penalty", 1.0, "Above 1 makes known tokens less likely.", flag_values=FLAGS
)
_SEED: Final = flags.DEFINE_integer("seed", 0, "Random seed of sampling.", flag_values=FLAGS)
_IGNORE_EOS: Final = flags.DEFINE_bool("ignore_eos", False, "Go on after an end-of-sequence token.", flag_values=FLAGS)
_PLACE: Final = define_place_flags(FLAGS)
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
    "prompt_lookup[:N]: verify what followed the last N tokens (3) earlier in the text. "
    "mtp: what the model's multi-token prediction head finds likeliest.",
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
_DUMP: Final = define_dump_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def _check_flags() -> None:
    if not _CHAT.value:
        if _SYSTEM.value is not None:
            raise InputError("`system` goes with `chat`")
    elif _TOKEN_IDS.value is not None:
        raise InputError("`chat` takes text: give `prompt`, or lines on stdin, instead of `token_ids`")
    elif len(_PROMPT.value or ()) > 1:
        raise InputError("`chat` takes one `prompt`: give the turns of a conversation as lines on stdin")
    elif _PROMPT.value is None and (_STATS.value or _LOGITS.value or _DUMP.directory.value or _FORMAT.is_json):
        raise InputError("`stats`, `logits`, `dump` and `format=json` are of one answer: give `prompt`")


def _options() -> GenerateKeywords:
    return {
        "max_new_tokens": _MAX_NEW_TOKENS.value,
        "ignore_eos": _IGNORE_EOS.value,
        "temperature": _TEMPERATURE.value,
        "top_k": _TOP_K.value,
        "top_p": _TOP_P.value,
        "min_p": _MIN_P.value,
        "repetition_penalty": _REPETITION_PENALTY.value,
        "seed": _SEED.value,
    }


def _streams(model: LoadedModel) -> Iterator[TokenStream]:
    """Yields the answers, one after the other; several prompts have one answer together."""
    options = _options()
    if _CHAT.value:
        translate = flag_translator(FLAGS)
        yield from Turns(model, _SYSTEM.value, _PROMPT.value, options, [*map(user_path, _IMAGE.value)], translate)
    elif _IMAGE.value:
        yield _seeing(model, options)
    elif _TOKEN_IDS.value is not None:
        ids = [parse_token_ids(text, model.vocabulary) for text in _TOKEN_IDS.value]
        yield model.stream_batch(token_ids=ids, **options)
    else:
        yield model.stream_batch(_PROMPT.value or (), **options)


def _seeing(model: LoadedModel, options: GenerateKeywords) -> TokenStream:
    """Returns the answer to one prompt with pictures."""
    given = _PROMPT.value or _TOKEN_IDS.value or ()
    if len(given) != 1:
        raise InputError("`image` goes with one prompt")
    images = [*map(user_path, _IMAGE.value)]
    if _TOKEN_IDS.value is not None:
        return model.stream(token_ids=parse_token_ids(given[0], model.vocabulary), images=images, **options)
    return model.stream(given[0], images=images, **options)


def _given_bundle() -> tapeline.Bundle | None:
    """Opens the bundle that is named; None where a model is."""
    if (_BUNDLE.value is None) == (_MODEL.model.value is None):
        raise InputError("give either `bundle` or `model`")
    if _BUNDLE.value is None:
        return None
    _MODEL.refuse()
    return tapeline.Bundle(user_path(_BUNDLE.value))


def main() -> None:
    """Streams the generated text to stdout, or prints it with figures when it is done."""
    began = time.perf_counter()
    _check_flags()
    stats_file, logits_file = output_file("stats", _STATS.value), output_file("logits", _LOGITS.value)
    bundle = _given_bundle()
    if not _CHAT.value and (_PROMPT.value is None) == (_TOKEN_IDS.value is None):
        raise InputError("give either `prompt` or `token_ids`")
    if bundle is None:
        with TerminalProgress(flag_translator(FLAGS)) as progress:
            bundle = _MODEL.bundle(_PLACE.place(), progress)
    with (
        TerminalProgress() as progress,
        tapeline.load(
            bundle,
            **_PLACE.keywords(),
            encoder_inputs=encoder_inputs(bundle, _INPUT.value),
            prompt_cache=output_file("prompt_cache", _PROMPT_CACHE.value),
            speculate=_SPECULATE.value,
            draft=None if _DRAFT.value is None else user_path(_DRAFT.value),
            draft_tokens=_DRAFT_TOKENS.value,
            dump=_DUMP.options(),
            progress=progress,
        ) as model,
    ):
        let_workers_run()
        for stream in _streams(model):
            stats = GenerationStats(stream.prompt_tokens)
            load_seconds = stats.started - began
            output = GenerationOutput(len(stream.answers), keep_logits=logits_file is not None, silent=_FORMAT.is_json)
            with stoppable(stream) if _CHAT.value else contextlib.nullcontext(stream) as tokens:
                for token in tokens:
                    output.push(token)
                    stats.token(model.counters, model.token_bytes)
            output.finish(stream.answers)
            if _CHAT.value and stream.answers[0].ended == "length" and not _FORMAT.is_json:
                say(f"(cut off by --max_new_tokens={_MAX_NEW_TOKENS.value})")
            if logits_file:
                _write_logits(logits_file, output)
            if stats_file or _FORMAT.is_json:
                figures = stats.as_json(load_seconds, model.device, stream)
                figures["dispatches"] = dispatches(bundle, model.target)
                _put_figures(figures, stats_file, stream)


def _put_figures(figures: dict[str, Any], stats_file: Path | None, stream: TokenStream) -> None:
    if stats_file:
        stats_file.write_text(json.dumps(figures, indent=2) + "\n")
    if _FORMAT.is_json:
        put_json({"answers": stream.answers, "stats": figures})


def _write_logits(path: Path, output: GenerationOutput) -> None:
    with path.open("wb") as file:  # given a name, NumPy would add .npy
        np.save(file, output.logits())
