"""Transcribes an audio file with a bundle of a speech model (Whisper, or wav2vec2 and other CTC models).

transcribe --bundle DIR --audio FILE.wav [--language en] [--task translate] [--timestamps] [--format srt]

The file is WAV or FLAC, with any sample rate and up to eight channels.
"""

import sys
import typing
from typing import Final

from absl import flags

import tapeline
from lang_core import InputError
from tapeline.cli import user_path
from tapeline.command._paths import check_readable
from tapeline.command._place_flags import define_place_flags
from tapeline.running import let_workers_run
from tapeline.running.transcribing import Guards, Segment, Task, TranscriptionFormat, clock

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",), ("audio",))

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_AUDIO: Final = flags.DEFINE_string("audio", None, "WAV or FLAC file to transcribe.", required=True, flag_values=FLAGS)
_LANGUAGE: Final = flags.DEFINE_string(
    "language",
    None,
    "Spoken language, such as en or english. Default: detected from the audio.",
    flag_values=FLAGS,
)
_TASK: Final = flags.DEFINE_enum(
    "task",
    "transcribe",
    typing.get_args(Task),
    "Task: transcribe keeps the spoken language, translate translates into English.",
    flag_values=FLAGS,
)
_TIMESTAMPS: Final = flags.DEFINE_bool(
    "timestamps",
    False,
    "Print each segment with its start and end time as soon as it is transcribed.",
    flag_values=FLAGS,
)
_WORDS: Final = flags.DEFINE_bool(
    "word_timestamps", False, "Print the words with their times, with formats text and verbose_json.", flag_values=FLAGS
)
_GUARDS: Final = flags.DEFINE_bool(
    "guards",
    False,
    "Whisper: leave out silence, and decode repetitive or improbable text again, as faster-whisper does by default.",
    flag_values=FLAGS,
)
_FORMAT: Final = flags.DEFINE_enum(
    "format",
    "text",
    typing.get_args(TranscriptionFormat),
    "Output format: json has the text, verbose_json also the segments; srt and vtt are subtitles.",
    flag_values=FLAGS,
)
_PLACE: Final = define_place_flags(FLAGS)


def main() -> None:
    """Prints the transcription."""
    words = _WORDS.value
    if words and _FORMAT.value not in ("text", "verbose_json"):
        raise InputError(f"`word_timestamps`: {_FORMAT.value} has no words: choose `format` text or verbose_json")
    streams = _TIMESTAMPS.value and _FORMAT.value == "text" and not words
    check_readable("audio", [_AUDIO.value])
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        let_workers_run()
        transcription = model.transcribe(
            user_path(_AUDIO.value),
            language=_LANGUAGE.value,
            task=typing.cast(Task, _TASK.value),
            timestamps=_TIMESTAMPS.value or _FORMAT.value in ("srt", "vtt"),
            word_timestamps=words,
            guards=Guards() if _GUARDS.value else None,
            on_segment=_print_segment if streams else None,
        )
    if words and _FORMAT.value == "text":
        for word in transcription.words:
            print(f"[{clock(word.start)} --> {clock(word.end)}] {word.text.strip()}")
    elif not streams:
        sys.stdout.write(transcription.format(typing.cast(TranscriptionFormat, _FORMAT.value)).rstrip("\n") + "\n")


def _print_segment(segment: Segment) -> None:
    if segment.text.strip():
        print(f"[{clock(segment.start)} --> {clock(segment.end)}] {segment.text.strip()}", flush=True)
