"""Part of a loaded bundle that embeds, ranks, classifies and tags texts, embeds pictures and hears sound."""

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from lang_core import InputError, checked_choices, near_keywords
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.media.audio import DEFAULT_LIMITS, AudioLimits
from tapeline.media.images import DEFAULT_IMAGE_LIMITS, ImageLimits
from tapeline.running._answerer import Answer, QuestionAnswerer
from tapeline.running._classifier import HYPOTHESIS, TextClassifier
from tapeline.running._embedder import SentenceEmbedder
from tapeline.running._filler import Filling, MaskFiller
from tapeline.running._given_prompts import check_text, checked_texts
from tapeline.running._multi_vector import (
    LateRanker,
    MultiVectorEmbedder,
    TextTask,
    TokenVectors,
    has_token_vectors,
)
from tapeline.running._pictures import ImageClassifier, ImageEmbedder, ImageSource, classifies_pictures
from tapeline.running._ranker import TextRanker
from tapeline.running._sparse import SparseEmbedder
from tapeline.running._speech import FramesBundle, Sound, SpeechBundle, blocks_of, hears_frames
from tapeline.running._tagger import OUTSIDE, Aggregation, TaggedText, TokenTagger
from tapeline.running._text_array import TextArray
from tapeline.running._zero_shot import PICTURE_HYPOTHESIS, ZeroShotClassifier
from tapeline.running.transcribing import NO_GUARDS, CtcTranscriber, Guards, Segment, Task, Transcriber, Transcription
from tapeline.text import Tokenizer
from transformer_core import ENCODE_IMAGE

_ONE: Final = ": put a single text into a list"


@near_keywords
class Senses:
    """Bundle in a session: embeddings, scores and classes of texts, and transcriptions.

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

    @checked_choices
    def embed_sparse(
        self, texts: Sequence[str], *, truncate: bool = True, check: Callable[[], object] | None = None
    ) -> TextArray:
        """Returns the weights f32 [texts, V] of the vocabulary's tokens, with a bundle of a masked language model.

        A weight is the largest log(1 + relu(logit)) of a text's places (SPLADE); most are 0. Compare two texts by the
        product of their vectors.

        Args:
            texts: the texts.
            truncate: False refuses texts that are longer than the model reads.
            check: called before each text is encoded and each call of the model; its exceptions end the work.

        Raises:
            InputError: the bundle is not of a masked language model, ``texts`` is not a list of texts, or a text has
                more tokens than the bundle takes.
        """
        return self._sparse(checked_texts("texts", texts, _ONE), truncate=truncate, check=check or _go_on)

    @checked_choices
    def embed_tokens(
        self,
        texts: Sequence[str],
        *,
        task: TextTask = "document",
        truncate: bool = True,
        check: Callable[[], object] | None = None,
    ) -> list[TokenVectors]:
        """Returns a vector for each token of each text, with a bundle of a ColBERT (late interaction).

        Vectors are those of ``encode_query`` and ``encode_document`` of sentence-transformers' ``MultiVectorEncoder``.

        Args:
            texts: the texts.
            task: ``query`` or ``document``, which have prompts, lengths and tokens that count of their own.
            truncate: False refuses texts that are longer than the model reads.
            check: called before each text is encoded and each call of the model; its exceptions end the work.

        Raises:
            InputError: the bundle gives no vectors of tokens, ``texts`` is not a list of texts, or a text has more
                tokens than the bundle takes.
        """
        given = checked_texts("texts", texts, _ONE)
        return self._multi_vector(given, task, truncate=truncate, check=check or _go_on)

    def late_score(self, query: np.ndarray, document: np.ndarray) -> float:
        """Returns how well a document answers a query (MaxSim), by their vectors of ``embed_tokens``."""
        return self._multi_vector.score(query, document)

    def token_text(self, token_id: int) -> str:
        """Returns the text of a token of ``embed_sparse``."""
        return self._sparse.token(token_id)

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

        With a bundle of a cross-encoder, of a reranker that is a language model (Qwen3-Reranker), or of a ColBERT, with
        scores by late interaction. A pair that is
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

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes of a bundle that classifies texts or images or tags tokens: ``id2label`` of config.json.

        Raises:
            InputError: the bundle does none of these.
        """
        if classifies_pictures(self.bundle):
            return self._image_classifier.labels
        return self._tagger.labels if self.bundle.config.model.get("token_labels") else self._classifier.labels

    @checked_choices
    def classify(
        self,
        texts: Sequence[str],
        *,
        pairs: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        hypothesis: str = HYPOTHESIS,
        multi_label: bool = False,
        raw: bool = False,
        truncate: bool = True,
        check: Callable[[], object] | None = None,
    ) -> TextArray:
        """Returns the scores f32 [texts, labels] of the classes of each text, with a bundle of a classifier.

        The classes are ``model.labels``, or the ``labels`` of the call. Scores are those of transformers' pipelines:
        probabilities; of a model of several labels at once, or with one label, logistic; of a regression the values.
        A text that is longer than the model reads is truncated; ``truncated`` of the result has the number of tokens
        that each text lost.

        Args:
            texts: the texts.
            pairs: a second text for each; an empty one, and None, are none, as in transformers.
            labels: classes of your own, with a model of natural-language inference (zero-shot classification).
            hypothesis: text with ``{}`` in the place of one of ``labels``.
            multi_label: whether a text may be of several ``labels``, so that scores do not add up to 1.
            raw: whether logits are returned as they are.
            truncate: False refuses texts that are longer than the model reads.
            check: is called before each text is encoded and each call of the model; what it raises ends the work.

        Raises:
            InputError: the bundle classifies no texts, or not with labels of a call; an argument is of another type;
                or a text has more tokens than the bundle takes.
        """
        given, go_on = checked_texts("texts", texts, _ONE), check or _go_on
        if labels is None:
            seconds = None if pairs is None else checked_texts("pairs", pairs, _ONE)
            return self._classifier(given, seconds, raw=raw, truncate=truncate, check=go_on)
        if pairs is not None or raw:
            raise InputError("`labels`: go without `pairs` and `raw`")
        check_text("hypothesis", hypothesis)
        names = checked_texts("labels", labels, _ONE)
        options = {"hypothesis": hypothesis, "several": multi_label, "truncate": truncate}
        return self._classifier.among(given, names, **options, check=go_on)

    @checked_choices
    def tag(
        self,
        texts: Sequence[str],
        *,
        aggregation: Aggregation = "simple",
        ignored: Sequence[str] = (OUTSIDE,),
        truncate: bool = True,
        check: Callable[[], object] | None = None,
    ) -> list[TaggedText]:
        """Returns the tokens or spans of each text with their classes, with a bundle of a classifier of tokens.

        Args:
            texts: the texts.
            aggregation: ``none`` for tokens; ``simple`` joins neighbours of one class; ``first``, ``average`` and
                ``max`` give a word the class of its first token, of their mean, or of the surest one, as transformers.
            ignored: classes that are left out.
            truncate: False refuses texts that are longer than the model reads.
            check: is called before each text is encoded and each call of the model; what it raises ends the work.

        Raises:
            InputError: the bundle tags no tokens, an argument is of another type, or a text has more tokens than the
                bundle takes.
        """
        given, left_out = checked_texts("texts", texts, _ONE), checked_texts("ignored", ignored, _ONE)
        return self._tagger(given, aggregation, ignored=left_out, truncate=truncate, check=check or _go_on)

    @checked_choices
    def answer(
        self,
        question: str,
        context: str,
        *,
        top_k: int = 1,
        max_answer_tokens: int = 15,
        allow_none: bool = False,
        check: Callable[[], object] | None = None,
    ) -> list[Answer]:
        """Returns the spans of a context that answer a question, the most probable first.

        With a bundle of a model for extractive question answering. A context that is longer than the model reads is
        read in windows that share tokens.

        Args:
            question: the question.
            context: text that has the answer.
            top_k: number of answers; there may be fewer.
            max_answer_tokens: the most tokens of an answer.
            allow_none: whether one answer may be empty: the context has none.
            check: is called before each call of the model; what it raises ends the work.

        Raises:
            InputError: the bundle answers no questions, an argument is of another type, or the question is too long.
        """
        check_text("question", question)
        check_text("context", context)
        options = {"top_k": top_k, "most_tokens": max_answer_tokens, "may_have_none": allow_none}
        return self._answerer(question, context, **options, check=check or _go_on)

    @checked_choices
    def fill(
        self,
        texts: Sequence[str],
        *,
        top_k: int = 5,
        targets: Sequence[str] = (),
        truncate: bool = False,
        check: Callable[[], object] | None = None,
    ) -> list[list[list[Filling]]]:
        """Returns, for each mask of each text, the most probable tokens, with a bundle of a masked language model.

        Args:
            texts: texts with one or more ``model.mask``.
            top_k: number of tokens.
            targets: tokens among which are chosen; all of the vocabulary if there are none.
            truncate: True truncates texts that are longer than the model reads.
            check: is called before each text is encoded and each call of the model; what it raises ends the work.

        Raises:
            InputError: the bundle fills no masks, an argument is of another type, or a text has no mask or more tokens
                than the bundle takes.
        """
        given, among = checked_texts("texts", texts, _ONE), checked_texts("targets", targets, _ONE)
        return self._filler(given, top_k, among, truncate=truncate, check=check or _go_on)

    @property
    def mask(self) -> str:
        """Mask in the texts of ``fill``, such as ``[MASK]``.

        Raises:
            InputError: the bundle fills no masks.
        """
        return self._filler.mask

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
    def classify_images(
        self,
        images: Sequence[ImageSource],
        *,
        labels: Sequence[str] | None = None,
        hypothesis: str = PICTURE_HYPOTHESIS,
        raw: bool = False,
        limits: ImageLimits = DEFAULT_IMAGE_LIMITS,
    ) -> np.ndarray:
        """Returns the scores f32 [images, labels] of the classes of each picture, with a bundle of a classifier.

        The classes are ``model.labels``, or with a bundle of a CLIP or a SigLIP the ``labels`` of the call. Scores are
        those of transformers' pipelines, as for ``classify``; a SigLIP's are of each label by itself.

        Args:
            images: paths of image files, the bytes of such, or pixels u8 [height, width, 3].
            labels: labels of your own.
            hypothesis: text with ``{}`` in the place of one of ``labels``.
            raw: whether logits are returned as they are.
            limits: bounds of each.

        Raises:
            InputError: the bundle does not classify images, or one is damaged or exceeds a bound.
        """
        if labels is None:
            return self._image_classifier(images, limits, raw=raw)
        check_text("hypothesis", hypothesis)
        names = checked_texts("labels", labels, _ONE)
        return self._zero_shot(images, names, hypothesis, limits, raw=raw)

    @checked_choices
    def transcribe(
        self,
        audio: Sound,
        *,
        language: str | None = None,
        task: Task = "transcribe",
        timestamps: bool = False,
        word_timestamps: bool = False,
        guards: Guards | None = None,
        rate: int | None = None,
        limits: AudioLimits = DEFAULT_LIMITS,
        on_segment: Callable[[Segment], object] | None = None,
        check: Callable[[], object] | None = None,
    ) -> Transcription:
        """Turns sound into text, with a bundle of a speech model (Whisper, or a CTC model such as wav2vec2).

        Several threads may transcribe with one bundle: windows of their sound take turns.

        Args:
            audio: path of a WAV or FLAC file, the bytes of one, or mono samples f32 [samples] from -1 to 1.
            language: language that is spoken, such as ``en`` or ``english``; None to detect it.
            task: ``transcribe``, or ``translate`` into English.
            timestamps: whether the model gives times; of sound longer than its window (30 seconds) it always does.
                Segments of a CTC model end at pauses.
            word_timestamps: whether words and their times are returned.
            guards: bounds of a window's text against silence and repetition, such as ``Guards()``; None without.
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
        read = blocks_of(audio, rate, transcriber.rate, limits, check)
        asked = {"language": language, "task": task, "timestamps": timestamps, "words": word_timestamps}
        return transcriber(read, **asked, on_segment=on_segment, check=check, guards=guards or NO_GUARDS)

    @cached_property
    def _embedder(self) -> SentenceEmbedder:
        return SentenceEmbedder(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _sparse(self) -> SparseEmbedder:
        return SparseEmbedder(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _multi_vector(self) -> MultiVectorEmbedder:
        return MultiVectorEmbedder(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _ranker(self) -> TextRanker | LateRanker:
        if has_token_vectors(self.bundle):
            return LateRanker(self._multi_vector)
        return TextRanker(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _classifier(self) -> TextClassifier:
        return TextClassifier(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _tagger(self) -> TokenTagger:
        return TokenTagger(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _answerer(self) -> QuestionAnswerer:
        return QuestionAnswerer(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _filler(self) -> MaskFiller:
        return MaskFiller(self.bundle, self._session, Tokenizer.load(self.bundle.path))

    @cached_property
    def _image_embedder(self) -> ImageEmbedder:
        return ImageEmbedder(self.bundle, self._session)

    @cached_property
    def _image_classifier(self) -> ImageClassifier:
        return ImageClassifier(self.bundle, self._session)

    @cached_property
    def _zero_shot(self) -> ZeroShotClassifier:
        return ZeroShotClassifier(self.bundle, self._session)

    @cached_property
    def _transcriber(self) -> Transcriber | CtcTranscriber:
        if hears_frames(self.bundle):
            return CtcTranscriber(self.bundle.path, FramesBundle(self.bundle, self._session))
        return Transcriber(self.bundle.path, SpeechBundle(self.bundle, self._session))


def _go_on() -> None:
    """Checks nothing."""
