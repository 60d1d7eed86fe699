"""Speech to text: prompts, rules of tokens, windows and segments, with any model that attends to sound."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.running.transcribing._alignment import median_filtered, token_times, warped
    from tapeline.running.transcribing._config import SpeechConfig
    from tapeline.running.transcribing._ctc import CtcModel, CtcTranscriber, chunks_of
    from tapeline.running.transcribing._ctc_text import CtcVocabulary, FrameSpan
    from tapeline.running.transcribing._guards import NO_GUARDS, Guards
    from tapeline.running.transcribing._languages import LANGUAGES, language_code
    from tapeline.running.transcribing._prompt import Task, prompt_tokens
    from tapeline.running.transcribing._rules import TokenRules
    from tapeline.running.transcribing._segments import Cut, cut_window
    from tapeline.running.transcribing._transcriber import SpeechModel, Transcriber
    from tapeline.running.transcribing._transcription import (
        Segment,
        Transcription,
        TranscriptionFormat,
        Word,
        clock,
    )

export_lazily(__name__)
