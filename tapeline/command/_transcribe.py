"""Transcribes an audio file with a bundle of a speech model (Whisper).

transcribe --bundle DIR --audio FILE.wav [--language en] [--task translate] [--timestamps] [--format srt]

The file is WAV or FLAC, with any sample rate and up to eight channels.
"""

import sys
import typing
from typing import Final

from absl import flags

import tapeline
from tapeline.cli import user_path
from tapeline.command._paths import check_readable
from tapeline.command._place_flags import define_place_flags
from tapeline.running import let_workers_run
from tapeline.running.transcribing import Segment, Task, TranscriptionFormat, clock

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
    streams = _TIMESTAMPS.value and _FORMAT.value == "text"
    check_readable("audio", [_AUDIO.value])
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        let_workers_run()
        transcription = model.transcribe(
            user_path(_AUDIO.value),
            language=_LANGUAGE.value,
            task=typing.cast(Task, _TASK.value),
            timestamps=_TIMESTAMPS.value or _FORMAT.value in ("srt", "vtt"),
            on_segment=_print_segment if streams else None,
        )
    if not streams:
        sys.stdout.write(transcription.format(typing.cast(TranscriptionFormat, _FORMAT.value)).rstrip("\n") + "\n")


def _print_segment(segment: Segment) -> None:
    if segment.text.strip():
        print(f"[{clock(segment.start)} --> {clock(segment.end)}] {segment.text.strip()}", flush=True)
