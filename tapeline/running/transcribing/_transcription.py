"""A transcription, and the forms in which it is written."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from lang_core import checked_choices
from tapeline.running.transcribing._languages import LANGUAGES
from tapeline.running.transcribing._prompt import Task

TranscriptionFormat = Literal["text", "json", "verbose_json", "srt", "vtt"]
"""Forms of a transcription: those of OpenAI's ``response_format``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word of a transcription.

    Attributes:
        start: when it begins, in seconds.
        end: when it ends, in seconds.
        text: the word; a Whisper's begin with a space.
    """

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Part of a transcription.

    Attributes:
        start: when it begins, in seconds.
        end: when it ends, in seconds.
        text: the text, as the tokens give it: most models begin it with a space.
        token_ids: the tokens, timestamps included.
    """

    start: float
    end: float
    text: str
    token_ids: tuple[int, ...]


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class Transcription:
    """Text of sound.

    Attributes:
        text: the whole text.
        segments: its parts, with their times.
        language: code of the language that was given or detected; None for a model without languages.
        task: task of the request.
        duration: length of the sound in seconds.
        words: the words with their times, if these were asked for.
    """

    text: str
    segments: tuple[Segment, ...]
    language: str | None
    task: Task
    duration: float
    words: tuple[Word, ...] = ()

    @checked_choices
    def format(self, form: TranscriptionFormat) -> str:
        """Returns the transcription as text, as JSON (in OpenAI's fields), or as subtitles."""
        if form == "text":
            return f"{self.text.strip()}\n"
        if form == "srt":
            return "".join(f"{number}\n{_cue(segment, ',')}" for number, segment in enumerate(self._spoken(), 1))
        if form == "vtt":
            return "WEBVTT\n\n" + "".join(_cue(segment, ".") for segment in self._spoken())
        return json.dumps(self.fields() if form == "verbose_json" else {"text": self.text.strip()}, ensure_ascii=False)

    def _spoken(self) -> list[Segment]:
        """Returns the segments that have text."""
        return [segment for segment in self.segments if segment.text.strip()]

    def fields(self) -> dict[str, Any]:
        """Returns the fields of ``verbose_json``."""
        words = [{"word": word.text.strip(), "start": word.start, "end": word.end} for word in self.words]
        return {
            "task": self.task,
            "language": LANGUAGES.get(self.language or "", self.language or ""),
            "duration": self.duration,
            "text": self.text.strip(),
            "segments": [
                {
                    "id": number,
                    "start": segment.start,
                    "end": segment.end,
                    "text": segment.text,
                    "tokens": list(segment.token_ids),
                }
                for number, segment in enumerate(self.segments)
            ],
            **({"words": words} if words else {}),
        }


def _cue(segment: Segment, mark: str) -> str:
    """Returns times and text of a subtitle; its text lacks empty lines and arrows, which would end or begin one."""
    text = " ".join(segment.text.split()).replace("-->", "->")
    return f"{clock(segment.start, mark)} --> {clock(segment.end, mark)}\n{text}\n\n"


def clock(seconds: float, mark: str = ".") -> str:
    """Returns a time as hours, minutes, seconds and, behind a mark, thousandths.

    >>> clock(3661.5)
    '01:01:01.500'
    """
    minutes, thousandths = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{thousandths // 1000:02d}{mark}{thousandths % 1000:03d}"
