"""Part of a loaded bundle that embeds texts and pictures and hears sound."""

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from lang_core import checked_choices, near_keywords
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.media.audio import DEFAULT_LIMITS, AudioLimits
from tapeline.media.images import DEFAULT_IMAGE_LIMITS, ImageLimits
from tapeline.running._embedder import SentenceEmbedder
from tapeline.running._given_prompts import check_text, checked_texts
from tapeline.running._pictures import ImageEmbedder, ImageSource
from tapeline.running._ranker import TextRanker
from tapeline.running._speech import Sound, SpeechBundle, blocks_of
from tapeline.running._text_array import TextArray
from tapeline.running.transcribing import Segment, Task, Transcriber, Transcription
from tapeline.text import Tokenizer
from transformer_core.models import ENCODE_IMAGE

_ONE: Final = ": put a single text into a list"


@near_keywords
class Senses:
    """Bundle in a session: embeddings and transcriptions.

    Attributes:
        bundle: the bundle.
    """

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Takes the session, and runs nothing yet."""
        self.bundle: Final = bundle
        self._session: Final = session
        self._lock: Final = threading.Lock()  # of the transcriber, which is made once

    @property
    def sees(self) -> bool:
        """True if prompts and conversations may have pictures."""
        return any(entry_point.name == ENCODE_IMAGE for entry_point in self.bundle.config.entry_points)

    @checked_choices
    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        truncate: bool = True,
        check: Callable[[], object] | None = None,
    ) -> TextArray:
        """Returns one vector f32 [texts, D] for each text, with a bundle of a sentence embedder.

        A text that is longer than the model reads is truncated, as in sentence-transformers; ``truncated`` of the
        result has the number of tokens that each text lost.

        Args:
            texts: the texts.
            prompt_name: prompt of config_sentence_transformers.json that is put before each; its default if None.
            truncate: False refuses texts that are longer than the model reads.
            check: called before each text is encoded and each call of the model; its exceptions end the work.

        Raises:
            InputError: the bundle does not embed sentences or lacks the prompt, ``texts`` is not a list of texts, or a
                text has more tokens than the bundle takes.
        """
        given = checked_texts("texts", texts, _ONE)
        return self._embedder(given, prompt_name, truncate=truncate, check=check or _go_on)

    @property
    def similarity(self) -> str:
        """Function that compares a sentence embedder's vectors: ``cosine``, ``dot``, ``euclidean`` or ``manhattan``.

        Raises:
            InputError: the bundle does not embed sentences.
        """
        return self._embedder.similarity

    @checked_choices
    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        truncate: bool = True,
        check: Callable[[], object] | None = None,
    ) -> TextArray:
        """Returns a score f32 [documents] for each document: how well it answers the query.

        With a bundle of a cross-encoder, or of a reranker that is a language model (Qwen3-Reranker). A pair that is
        longer than a cross-encoder reads is truncated, as in sentence-transformers; ``truncated`` of the result has the
        number of tokens that each pair lost.

        Args:
            query: the query.
            documents: the documents.
            truncate: False refuses pairs that are longer than the model reads.
            check: called before each pair is encoded and each call of the model; its exceptions end the work.

        Raises:
            InputError: the bundle does not rank texts, an argument is of another type, or a pair has more tokens than
                the bundle takes.
        """
        check_text("query", query)
        given = checked_texts("documents", documents, _ONE)
        return self._ranker(query, given, truncate=truncate, check=check or _go_on)

    def pair_tokens(self, query: str, document: str) -> int:
        """Returns the number of tokens that a bundle which ranks makes of a query and a document.

        Raises:
            InputError: the bundle does not rank texts.
        """
        return self._ranker.pair_tokens(query, document)

    def embed_images(self, images: Sequence[ImageSource], *, limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> np.ndarray:
        """Returns one vector f32 [images, D] for each picture, with a bundle of a vision model (ViT, SigLIP, CLIP).

        Args:
            images: paths of image files, the bytes of such, or pixels u8 [height, width, 3].
            limits: bounds of each.

        Raises:
            InputError: the bundle does not embed images, or one is damaged or exceeds a bound.
        """
        return self._image_embedder(images, limits)

    @checked_choices
    def transcribe(
        self,
        audio: Sound,
        *,
        language: str | None = None,
        task: Task = "transcribe",
        timestamps: bool = False,
        rate: int | None = None,
        limits: AudioLimits = DEFAULT_LIMITS,
        on_segment: Callable[[Segment], object] | None = None,
        check: Callable[[], object] | None = None,
    ) -> Transcription:
        """Turns sound into text, with a bundle of a speech model (Whisper).

        Several threads may transcribe with one bundle: windows of their sound take turns.

        Args:
            audio: path of a WAV or FLAC file, the bytes of one, or mono samples f32 [samples] from -1 to 1.
            language: language that is spoken, such as ``en`` or ``english``; None to detect it.
            task: ``transcribe``, or ``translate`` into English.
            timestamps: whether the model gives times; of sound longer than its window (30 seconds) it always does.
            rate: samples per second of an array; the model's if None.
            limits: bounds of a file's size and duration.
            on_segment: receives each segment as it comes; its exceptions end the transcription.
            check: called before each decoded block of a file, each window and each token; its exceptions end the
                transcription.

        Raises:
            InputError: the sound is damaged or beyond a bound, or the bundle does not have the language or the task.
        """
        with self._lock:
            transcriber = self._transcriber
        read = blocks_of(audio, rate, transcriber.log_mel.rate, limits, check)
        return transcriber(
            read, language=language, task=task, timestamps=timestamps, on_segment=on_segment, check=check
        )

    @cached_property
    def _embedder(self) -> SentenceEmbedder:
        return SentenceEmbedder(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _ranker(self) -> TextRanker:
        return TextRanker(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _image_embedder(self) -> ImageEmbedder:
        return ImageEmbedder(self.bundle, self._session)

    @cached_property
    def _transcriber(self) -> Transcriber:
        return Transcriber(self.bundle.path, SpeechBundle(self.bundle, self._session))


def _go_on() -> None:
    """Checks nothing."""
