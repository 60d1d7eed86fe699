"""Generates text with a bundle.

generate BUNDLE (--prompt TEXT | --token_ids 1,2,3) --max_new_tokens N
generate BUNDLE --chat --prompt TEXT            answers one message in the model's chat template
generate BUNDLE --chat                          a conversation: each line of stdin is a message
generate BUNDLE --chat --prompt TEXT --image FILE    asks about an image, with a bundle of a multimodal model
generate BUNDLE --prompt TEXT --target_language de_DE --num_beams 4    translates, with an encoder-decoder
generate MODEL ...                              a model, which is exported into the cache at first use

For several prompts, repeat --prompt: a bundle with slots answers them at once, others in turn.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from absl import flags

import tapeline
from generation import DEFAULT_SAMPLING
from lang_core import LARGE_JSON_BOUNDS, InputError, JsonError, json_value
from tapeline.cli import TerminalProgress, output_file, say, user_path, whole_file
from tapeline.command._chat_loop import ChatLoop, stoppable
from tapeline.command._dump_flags import define_dump_flags
from tapeline.command._flags import flag_translator
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._model_flags import define_model_flags
from tapeline.command._output import GenerationOutput
from tapeline.command._paths import check_arrays, check_bundle, check_empty, check_readable
from tapeline.command._place_flags import define_place_flags
from tapeline.running import (
    MOST_NEW_TOKENS,
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

_NEW_TOKENS: Final = 64
_STOPPING: Final = {"true": True, "false": False, "never": "never"}

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", flag_values=FLAGS)
_MODEL: Final = define_model_flags(FLAGS)
_PROMPT: Final = flags.DEFINE_multi_string("prompt", None, "Prompt text.", flag_values=FLAGS)
_TOKEN_IDS: Final = flags.DEFINE_multi_string(
    "token_ids", None, "Prompt as token ids, such as 1,2,3.", flag_values=FLAGS
)
_CHAT: Final = flags.DEFINE_bool("chat", False, "Apply the model's chat template to the prompt.", flag_values=FLAGS)
_SYSTEM: Final = flags.DEFINE_string("system", None, "System message. Needs --chat.", flag_values=FLAGS)
_INPUT: Final = flags.DEFINE_multi_string(
    "input",
    [],
    "Encoder input as NAME=FILE.npy, one per argument of encode, for encoder-decoder models.",
    flag_values=FLAGS,
)
_IMAGE: Final = flags.DEFINE_multi_string(
    "image",
    [],
    "Image file, one per <image> in the prompt; with --chat, images come before the first message.",
    flag_values=FLAGS,
)
_MAX_NEW_TOKENS: Final = flags.DEFINE_integer(
    "max_new_tokens",
    None,
    f"Maximum number of new tokens. Default: {_NEW_TOKENS}; in a chat, the tokens that remain in the context, at "
    f"most {MOST_NEW_TOKENS}; of an encoder-decoder max_length of its generation_config.json.",
    flag_values=FLAGS,
)
_TEMPERATURE: Final = flags.DEFINE_float(
    "temperature",
    None,
    f"Sampling temperature; 0 is greedy. Default: 0; for chat, the model's recommendation or "
    f"{DEFAULT_SAMPLING.temperature}.",
    flag_values=FLAGS,
)
_TOP_K: Final = flags.DEFINE_integer(
    "top_k",
    None,
    f"Number of most likely tokens to sample from; 0 is all. Default: 0; for chat, the model's recommendation or "
    f"{DEFAULT_SAMPLING.top_k}.",
    flag_values=FLAGS,
)
_TOP_P: Final = flags.DEFINE_float(
    "top_p",
    None,
    f"Cumulative probability of the most likely tokens to sample from. Default: 1; for chat, the model's "
    f"recommendation or {DEFAULT_SAMPLING.top_p}.",
    flag_values=FLAGS,
)
_MIN_P: Final = flags.DEFINE_float(
    "min_p",
    None,
    f"Minimum probability of a token, relative to the most likely token. Default: 0; for chat, the model's "
    f"recommendation or {DEFAULT_SAMPLING.min_p}.",
    flag_values=FLAGS,
)
_REPETITION_PENALTY: Final = flags.DEFINE_float(
    "repetition_penalty",
    None,
    "Penalty for tokens that occurred before; 1 is none. Default: 1; for chat, the model's recommendation or 1.",
    flag_values=FLAGS,
)
_SEED: Final = flags.DEFINE_integer(
    "seed", 0, "Random seed for sampling. The same seed gives the same answers.", flag_values=FLAGS
)
_SAMPLING: Final = (_TEMPERATURE, _TOP_K, _TOP_P, _MIN_P, _REPETITION_PENALTY, _SEED)
_IGNORE_EOS: Final = flags.DEFINE_bool(
    "ignore_eos", False, "Continue after an end-of-sequence token.", flag_values=FLAGS
)
_STOP: Final = flags.DEFINE_multi_string("stop", [], "Stop string: generation ends before it.", flag_values=FLAGS)
_JSON_SCHEMA: Final = flags.DEFINE_string(
    "json_schema",
    None,
    "The answer is JSON that this schema allows: the schema's text, which begins with {, or a file.",
    flag_values=FLAGS,
)
_REGEX: Final = flags.DEFINE_string(
    "regex", None, "The answer matches this regular expression as a whole.", flag_values=FLAGS
)
_NUM_BEAMS: Final = flags.DEFINE_integer(
    "num_beams",
    None,
    "Number of beams, for encoder-decoder models. Default: the model's recommendation or 1.",
    flag_values=FLAGS,
)
_LENGTH_PENALTY: Final = flags.DEFINE_float(
    "length_penalty",
    None,
    "Exponent of the length in a beam's score; above 0 favors long answers. Default: the model's recommendation or 1.",
    flag_values=FLAGS,
)
_EARLY_STOPPING: Final = flags.DEFINE_enum(
    "early_stopping",
    None,
    list(_STOPPING),
    "When beam search ends: true once there are as many answers as beams, false by a bound, never by the exact bound. "
    "Default: the model's recommendation or false.",
    flag_values=FLAGS,
)
_SOURCE_LANGUAGE: Final = flags.DEFINE_string(
    "source_language",
    None,
    "Language of the prompt, as the tokenizer names it, such as eng_Latn, en_XX or en. For translation models.",
    flag_values=FLAGS,
)
_TARGET_LANGUAGE: Final = flags.DEFINE_string(
    "target_language", None, "Language of the answer, for translation models.", flag_values=FLAGS
)
_PLACE: Final = define_place_flags(FLAGS)
_STATS: Final = flags.DEFINE_string(
    "stats", None, "JSON file for throughput, latency and memory figures.", flag_values=FLAGS
)
_LOGITS: Final = flags.DEFINE_string(
    "logits",
    None,
    "File (.npy) for the logits, f32 [steps, V], or [prompts, steps, V] for several prompts.",
    flag_values=FLAGS,
)
_PROMPT_CACHE: Final = flags.DEFINE_string(
    "prompt_cache",
    None,
    "Prompt cache file: its KV state is reused for a matching prompt prefix, and extended.",
    flag_values=FLAGS,
)
_SPECULATE: Final = flags.DEFINE_string(
    "speculate",
    None,
    "Speculative decoding without a draft model: prompt_lookup[:N] proposes the tokens that followed the last N "
    "tokens (default 3) earlier in the text; mtp uses the model's multi-token prediction head.",
    flag_values=FLAGS,
)
_DRAFT: Final = flags.DEFINE_string("draft", None, "Draft-model bundle for speculative decoding.", flag_values=FLAGS)
_DRAFT_TOKENS: Final = flags.DEFINE_integer(
    "draft_tokens",
    None,
    "Maximum number of draft tokens per step. Default: the number of tokens that verify takes.",
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


def _check_paths() -> None:
    """Checks the files and directories that flags name, before a model is exported."""
    check_bundle("draft", _DRAFT.value)
    check_readable("image", _IMAGE.value)
    check_arrays("input", _INPUT.value)
    check_empty("dump", _DUMP.directory.value)


def _options(model: LoadedModel, *, samples: bool) -> GenerateKeywords:
    """Returns the options of the generation.

    Args:
        model: the model.
        samples: True samples as the model recommends, False decodes greedily; flags override both.
    """
    options: GenerateKeywords = {**model.default_sampling} if samples else {}
    sampling: Any = {holder.name: holder.value for holder in _SAMPLING if holder.value is not None}
    limit = None if _CHAT.value or model.translates else _NEW_TOKENS
    options.update(sampling)
    options["max_new_tokens"] = limit if _MAX_NEW_TOKENS.value is None else _MAX_NEW_TOKENS.value
    options["ignore_eos"] = _IGNORE_EOS.value
    options["stop"] = tuple(_STOP.value)
    options["constraint"] = _constraint()
    options["num_beams"] = _NUM_BEAMS.value
    options["length_penalty"] = _LENGTH_PENALTY.value
    options["early_stopping"] = None if _EARLY_STOPPING.value is None else _STOPPING[_EARLY_STOPPING.value]
    options["source_language"] = _SOURCE_LANGUAGE.value
    options["target_language"] = _TARGET_LANGUAGE.value
    return options


def _constraint() -> "tapeline.JsonSchema | tapeline.RegularExpression | None":
    """Returns what the flags say that the text must be."""
    if _JSON_SCHEMA.value is not None and _REGEX.value is not None:
        raise InputError("give either `json_schema` or `regex`")
    if _REGEX.value is not None:
        return tapeline.RegularExpression(_REGEX.value)
    text = _JSON_SCHEMA.value
    if text is None:
        return None
    if not text.lstrip().startswith("{"):
        check_readable("json_schema", (text,))
        text = user_path(text).read_bytes()
    try:
        return tapeline.JsonSchema(json_value(text, LARGE_JSON_BOUNDS))
    except JsonError as error:
        raise InputError(f"json_schema={_JSON_SCHEMA.value:.60}: no JSON: {error}") from None


def _streams(model: LoadedModel, options: GenerateKeywords) -> Iterator[TokenStream]:
    """Yields the answers, one after the other; several prompts have one answer together."""
    if _CHAT.value:
        translate = flag_translator(FLAGS)
        yield from ChatLoop(model, _SYSTEM.value, _PROMPT.value, options, [*map(user_path, _IMAGE.value)], translate)
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
    """Opens the bundle that is named; None if a model is."""
    if (_BUNDLE.value is None) == (_MODEL.model.value is None):
        raise InputError("give either `bundle` or `model`")
    if _BUNDLE.value is None:
        return None
    _MODEL.refuse()
    return tapeline.Bundle(user_path(_BUNDLE.value))


def main() -> None:
    """Streams the generated text to stdout, or prints it with figures when it is done."""
    run(samples=False)


def run(*, samples: bool) -> None:
    """Runs the command.

    Args:
        samples: True samples as the model recommends, False decodes greedily; flags override both.
    """
    began = time.perf_counter()
    _check_flags()
    stats_file, logits_file = output_file("stats", _STATS.value), output_file("logits", _LOGITS.value)
    prompt_cache = output_file("prompt_cache", _PROMPT_CACHE.value)
    _check_paths()
    _constraint()
    bundle = _given_bundle()
    if not _CHAT.value and (_PROMPT.value is None) == (_TOKEN_IDS.value is None):
        raise InputError("give either `prompt` or `token_ids`")
    if bundle is None:
        with TerminalProgress(flag_translator(FLAGS)) as progress:
            bundle = _MODEL.bundle(_PLACE.place(), progress, chats=_CHAT.value)
    with (
        TerminalProgress() as progress,
        tapeline.load(
            bundle,
            **_PLACE.keywords(),
            encoder_inputs=encoder_inputs(bundle, _INPUT.value),
            prompt_cache=prompt_cache,
            speculate=_SPECULATE.value,
            draft=None if _DRAFT.value is None else user_path(_DRAFT.value),
            draft_tokens=_DRAFT_TOKENS.value,
            dump=_DUMP.options(),
            progress=progress,
        ) as model,
    ):
        let_workers_run()
        for stream in _streams(model, _options(model, samples=samples)):
            stats = GenerationStats(stream.prompt_tokens)
            load_seconds = stats.started - began
            output = GenerationOutput(len(stream.answers), keep_logits=logits_file is not None, silent=_FORMAT.is_json)
            with stoppable(stream) if _CHAT.value else contextlib.nullcontext(stream) as tokens:
                for token in tokens:
                    output.push(token)
                    stats.token(model.counters, model.token_bytes)
            output.finish(stream.answers)
            _say_cut(stream)
            if logits_file:
                _write_logits(logits_file, output)
            if stats_file or _FORMAT.is_json:
                figures = stats.as_json(load_seconds, model.device, stream)
                figures["dispatches"] = dispatches(bundle, model.target)
                _put_figures(figures, stats_file, stream)


def _say_cut(stream: TokenStream) -> None:
    """Says which answers were cut off, and by which limit.

    With --ignore_eos a text that is continued has as many tokens as were asked for, and is not cut off.
    """
    cut = [number for number, answer in enumerate(stream.answers, 1) if answer.ended == "length"]
    if not cut or (_IGNORE_EOS.value and not _CHAT.value):
        return
    which = "" if len(stream.answers) == 1 else f"answer {', '.join(map(str, cut))} "
    limit = stream.limits[0]
    if _MAX_NEW_TOKENS.value is not None or not _CHAT.value:
        say(f"({which}cut off by --max_new_tokens={limit})")
    elif limit == MOST_NEW_TOKENS:
        say(f"(cut off after {limit} tokens: --max_new_tokens allows more)")
    else:
        room = "/reset clears the conversation" if _PROMPT.value is None else "export with a larger --max_sequence"
        say(f"(cut off after {limit} tokens: the context is full; {room})")


def _put_figures(figures: dict[str, Any], stats_file: Path | None, stream: TokenStream) -> None:
    if stats_file:
        with whole_file(stats_file) as file:
            file.write(f"{json.dumps(figures, indent=2)}\n".encode())
    if _FORMAT.is_json:
        answers = [{**asdict(answer), "finish_reason": answer.finish_reason} for answer in stream.answers]
        put_json({"answers": answers, "stats": figures})


def _write_logits(path: Path, output: GenerationOutput) -> None:
    with whole_file(path) as file:
        np.save(file, output.logits())
