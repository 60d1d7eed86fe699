"""Prompt of a transcription: the special tokens of language, task and timestamps."""

from collections.abc import Callable
from typing import Literal

from lang_core import InputError, checked_choices, near_names, some_of
from tapeline.running.transcribing._config import SpeechConfig
from tapeline.running.transcribing._languages import LANGUAGES, language_code

Task = Literal["transcribe", "translate"]
"""Tasks of a speech model: text in the language that is spoken, or in English."""


@checked_choices
def prompt_tokens(
    config: SpeechConfig, language: str | None, task: Task, timestamps: bool, detect: Callable[[], int]
) -> list[int]:
    """Returns the tokens that a transcription begins with, as transformers' ``generate`` chooses them.

    Args:
        config: the model's settings.
        language: a code such as ``en``, a name such as ``english``, or a token's name; None to detect it.
        task: transcribe or translate.
        timestamps: whether timestamps follow.
        detect: returns the token of the language that is heard.

    Raises:
        InputError: the model does not have the language or the task.
    """
    has_tasks = config.multilingual and bool(config.tasks)
    _check_request(config, language, task, has_tasks)
    language = language if language is not None or not config.multilingual else config.language
    told = has_tasks or language is not None
    tokens: list[int | None] = [config.start, *([] if told else config.forced)]
    if language is not None:
        tokens[1:2] = [language_token(config, language)]
    elif config.languages and config.multilingual and tokens[1:2] in ([], [None]):
        tokens[1:2] = [detect()]
    if has_tasks:
        tokens.append(config.tasks[task])
    tokens = [*(token for token in tokens if token not in (None, config.no_timestamps))]
    if not timestamps and config.no_timestamps is not None:
        tokens.append(config.no_timestamps)
    return [token for token in tokens if token is not None]


def language_token(config: SpeechConfig, language: str) -> int:
    """Returns the token of a language.

    Raises:
        InputError: it is not a language, or none of the model's.
    """
    code = language_code(language)
    token = config.languages.get(f"<|{code}|>")
    if token is None:
        codes = [name.strip("<|>") for name in config.languages]
        near = near_names(code, [*codes, *(LANGUAGES[known] for known in codes if known in LANGUAGES)])
        raise InputError(f"language={language!r}: not found; available: {some_of(code, sorted(codes))}{near}")
    return token


def _check_request(config: SpeechConfig, language: str | None, task: Task, has_tasks: bool) -> None:
    if language is not None and not (config.multilingual and config.languages):
        raise InputError(
            f"language={language!r}: {config.where} names no languages (lang_to_id), so the model knows one only: "
            "leave `language` out"
        )
    if (has_tasks and task not in config.tasks) or (task != "transcribe" and not has_tasks):
        available = ", ".join(config.tasks) if has_tasks else "transcribe"
        raise InputError(f"task={task!r}: not found; available: {available}")
