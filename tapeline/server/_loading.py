"""Bundles as models that are served."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from generation import AnswerRules, load_default_sampling, load_eos_ids
from generation.engine import Drafting, Engine, EngineFigures, EngineSettings, Event, Ticket, TokenRequest
from lang_core import InputError
from tapeline.backends import Place, open_session
from tapeline.bundle import ARCHIVE, Bundle
from tapeline.media.audio import LogMel, Waveform
from tapeline.runners import SLOTS, BundleSlots, adapter_bytes, open_slots, takes_pictures, takes_texts
from tapeline.running import (
    LoadedModel,
    PicturePrompts,
    classifies,
    has_token_vectors,
    hears_frames,
    let_workers_run,
    load,
    ranks,
    row_drafting,
)
from tapeline.server._adapters import AdapterNames, ModelAdapters
from tapeline.server._classifying_model import ClassifyingModel
from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._model import ServedModel, TextModel
from tapeline.server._models import ModelSource
from tapeline.server._paths import without_paths
from tapeline.server._pictures import PictureReader
from tapeline.server._prefix_file import PrefixDirectory, PrefixFile
from tapeline.server._progress import LoadProgress
from tapeline.server._ranking_model import RankingModel
from tapeline.server._text_to_text_model import TextToTextModel
from tapeline.server._transcription_model import TranscriptionModel
from tapeline.server._verification import Verification
from tapeline.text import Chat, ChatTemplate, Tokenizer
from tapeline.toolcalls import ToolSupport

_EMBEDDING: Final = "sentence_embedding"
_ENCODE: Final = "encode"  # entry point of a Whisper, and of other encoders with a decoder
_SOUND: Final = "input_features"  # what that of a Whisper takes
_STAMPED: Final = ("kernel_config.json", "report.json")


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """Speculation of a server (docs/speculation.md).

    Attributes:
        speculate: ``prompt_lookup`` or ``prompt_lookup:N``; None with ``draft``.
        draft: bundle with slots that drafts; None with ``speculate``.
        tokens: greatest length of a draft; None for as many as a call verifies.
        rows: answers that may run at once while drafts are made.
    """

    speculate: str | None = None
    draft: Path | None = None
    tokens: int | None = None
    rows: int = 1


@dataclass(frozen=True, kw_only=True)
class Loading:
    """Settings with which bundles are loaded.

    Attributes:
        place: engine and devices to run on.
        engine: settings of the engine.
        template: chat template in place of the bundle's own; None for that one.
        drafts: speculation of text models; None for none.
        adapters: LoRA adapters that text models begin with.
        prefixes: directory of prefix caches that outlive the process; None keeps them in memory alone.
    """

    place: Place = field(default_factory=Place)
    engine: EngineSettings = field(default_factory=EngineSettings)
    template: str | None = None
    drafts: DraftOptions | None = None
    prefixes: PrefixDirectory | None = None
    adapters: AdapterNames = field(default_factory=AdapterNames)


def bundle_source(
    name: str,
    bundle: Callable[[], Bundle],
    loading: Loading,
    directory: Path | None = None,
    *,
    end: Callable[[], object] = lambda: None,
    progress: LoadProgress | None = None,
    verification: Verification | None = None,
) -> ModelSource:
    """Returns the source of a bundle's model.

    Args:
        name: name of the model.
        bundle: opens the bundle; it may take as long as an export.
        loading: settings.
        directory: directory of the bundle, to be looked at for changes; None never looks.
        end: ends the work that ``bundle`` waits for.
        progress: progress that ``bundle`` writes; by default one of its own.
        verification: verification of bundles that ``bundle`` returns before they are verified.
    """
    stamp = (lambda: None) if directory is None else lambda: _stamp(directory)
    steps = progress or LoadProgress()
    loading = replace(loading, adapters=loading.adapters.copy())  # which further loads of this model begin with

    def load_model() -> ServedModel:
        opened = bundle()
        steps.enter(f"loading the bundle on {loading.place.name}")
        return load_bundle(name, opened, loading)

    return ModelSource(name, load_model, stamp, end, steps, verification or Verification())


def bundle_bytes(bundle: Bundle, loading: Loading) -> int:
    """Returns the memory that a loaded bundle takes: weights, caches, adapters, prefix cache, and its draft model's."""
    weights = sum(file.stat().st_size for file in bundle.path.glob(f"*{Path(ARCHIVE).suffix}"))
    points = bundle.config.entry_points
    caches = [sum(one.spec.nbytes for one in point.arguments if one.alias_result is not None) for point in points]
    prefixes = loading.engine.store_bytes if SLOTS in bundle.config.model else 0
    draft = None if loading.drafts is None else loading.drafts.draft
    engine = replace(loading.engine, store_bytes=0)
    drafts = 0 if draft is None else bundle_bytes(Bundle(draft), replace(loading, drafts=None, engine=engine))
    return weights + max(caches, default=0) + prefixes + drafts + adapter_bytes(bundle)


def load_bundle(name: str, bundle: Bundle, loading: Loading) -> ServedModel:
    """Loads a bundle on a device.

    Raises:
        InputError: it was exported without slots, lacks a tokenizer, or is of a kind that is not served, or drafts are
            requested and it does not generate text; or an adapter does not fit it.
        ConfigError: it cannot verify the drafts.
        DescriptionError: a file of the bundle is not the one that was exported.
    """
    bundle.checks.check(loading.place.verify)
    if loading.adapters.paths() and not adapter_bytes(bundle):
        raise InputError(
            f"{bundle.path} takes no adapters beside its weights: export it with slots and "
            f"adapters={len(loading.adapters.paths())}, or merge one adapter (`export --adapter`)"
        )
    if loading.drafts is not None and SLOTS not in bundle.config.model:
        raise InputError(
            f"{bundle.path} has no slots, whose answers drafts could go with: leave out `speculate` and `draft`"
        )
    forward = next((point for point in bundle.config.entry_points if point.name == "forward"), None)
    if forward is not None and any(result.name == _EMBEDDING for result in forward.results):
        return EmbeddingModel(
            name=name,
            created=_created(bundle),
            context=forward.arguments[0].spec.shape[-1],
            embedder=_loaded(bundle, loading),
        )
    if forward is not None and (ranks(bundle) or has_token_vectors(bundle)):
        return _ranking_model(name, bundle, forward.arguments[0].spec.shape[-1], loading)
    if forward is not None and classifies(bundle):
        return _classifying_model(name, bundle, forward.arguments[0].spec.shape[-1], loading)
    if hears_frames(bundle):
        return _transcription_model(name, bundle, loading)
    encode = next((point for point in bundle.config.entry_points if point.name == _ENCODE), None)
    if encode is not None:
        if takes_texts(bundle):
            return _text_to_text_model(name, bundle, encode.arguments[0].spec.shape[-1], loading)
        _check_sound(bundle, [argument.name for argument in encode.arguments])
        return _transcription_model(name, bundle, loading)
    return _text_model(name, bundle, loading)


def _ranking_model(name: str, bundle: Bundle, context: int, loading: Loading) -> RankingModel:
    ranker = _loaded(bundle, loading)
    try:
        ranker.pair_tokens("a", "b")  # a bundle without a prompt is refused now, and not at the first request
    except BaseException:
        ranker.close()
        raise
    classifier = ranker if classifies(bundle) else None
    return RankingModel(name=name, created=_created(bundle), context=context, ranker=ranker, classifier=classifier)


def _classifying_model(name: str, bundle: Bundle, context: int, loading: Loading) -> ClassifyingModel:
    classifier = _loaded(bundle, loading)
    try:
        _ = classifier.labels  # a bundle whose names are damaged is refused now, and not at the first request
    except BaseException:
        classifier.close()
        raise
    return ClassifyingModel(name=name, created=_created(bundle), context=context, classifier=classifier)


def _check_sound(bundle: Bundle, takes: Sequence[str]) -> None:
    """Refuses an encoder and a decoder that are not of sound.

    Raises:
        InputError: the encoder takes something else.
    """
    if takes != [_SOUND]:
        raise InputError(
            f"{bundle.path}: its encoder takes {', '.join(takes)} ({bundle.config.model.get('family')}); of models "
            f"with an encoder and a decoder only those of {_SOUND} (Whisper) and of texts are served: run it with "
            "`generate`"
        )


def _text_to_text_model(name: str, bundle: Bundle, context: int, loading: Loading) -> TextToTextModel:
    Tokenizer.load(bundle.path)  # a bundle without one, or with rules that are refused, is refused now
    AnswerRules.read(bundle.path)
    return TextToTextModel(name=name, created=_created(bundle), context=context, reader=_loaded(bundle, loading))


def _transcription_model(name: str, bundle: Bundle, loading: Loading) -> TranscriptionModel:
    # A bundle without the settings is refused now, and not at the first request.
    _ = Waveform.load(bundle.path) if hears_frames(bundle) else LogMel.load(bundle.path)
    return TranscriptionModel(
        name=name,
        created=_created(bundle),
        context=bundle.config.model["max_sequence"],
        reader=_loaded(bundle, loading),
    )


def _text_model(name: str, bundle: Bundle, loading: Loading) -> TextModel:
    tokenizer = Tokenizer.load(bundle.path)
    template, problem = _template(bundle.path, loading, tokenizer.tokens)
    ends = load_eos_ids(bundle.path)
    defaults = load_default_sampling(bundle.path)
    pictures = PictureReader(PicturePrompts(bundle, tokenizer)) if takes_pictures(bundle) else None
    engine, slots = _engine(name, bundle, loading)
    adapters = None if slots.adapters is None else ModelAdapters(name, slots.adapters, loading.adapters)
    if adapters is not None:
        try:
            adapters.load_all()
        except BaseException:
            engine.close()
            raise
    return TextModel(
        name=name,
        created=_created(bundle),
        context=slots.capacity,
        vocabulary=slots.vocabulary,
        engine=engine,
        tokenizer=tokenizer,
        ends=ends,
        template=template,
        no_template=problem,
        tools=None if template is None else ToolSupport(template, tokenizer),
        chat_ends=ends if template is None else ends | Chat(template, tokenizer).end_ids(),
        defaults=defaults,
        pictures=pictures,
        adapters=adapters,
    )


def _loaded(bundle: Bundle, loading: Loading) -> LoadedModel:
    place = loading.place
    return load(
        bundle,
        engine=place.engine,
        device=place.device,
        mesh=place.mesh,
        checkpoint=place.checkpoint,
        verify=place.verify,
        trust_compiled=place.trust_compiled,
    )


def _template(directory: Path, loading: Loading, tokens: Mapping[str, str]) -> tuple[ChatTemplate | None, str]:
    """Returns the chat template, or why there is none."""
    if loading.template is not None:
        return ChatTemplate.find(directory, loading.template, tokens=tokens), ""
    try:
        return ChatTemplate.find(directory, tokens=tokens), ""
    except InputError as error:
        return None, without_paths(str(error).replace(str(directory), "its bundle"), look=True)  # clients see this


def _engine(name: str, bundle: Bundle, loading: Loading) -> tuple["BundleEngine", BundleSlots]:
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(open_session(bundle, loading.place))
        slots = open_slots(bundle, session)
        remake = partial(BundleSlots, bundle, session, invariance=slots.invariance, adapters=slots.adapters)
        drafting = _drafting(bundle, loading, stack)
        archive = _archive(name, bundle, loading, slots)
        engine = Engine(
            slots, loading.engine, remake=remake, drafting=drafting, on_start=let_workers_run, archive=archive
        )
        return BundleEngine(engine, stack.pop_all()), slots


def _archive(name: str, bundle: Bundle, loading: Loading, slots: BundleSlots) -> PrefixFile | None:
    """Returns the file of a model's prefixes; None of a model with pictures, as those have no name of their own."""
    if loading.prefixes is None or not loading.engine.store_bytes or slots.image_token is not None:
        return None
    return loading.prefixes.file(name, bundle, loading.place.name, loading.engine.store_bytes)


def _drafting(bundle: Bundle, loading: Loading, stack: contextlib.ExitStack) -> Drafting | None:
    drafts = loading.drafts
    if drafts is None:
        return None
    return stack.enter_context(
        row_drafting(bundle, loading.place, drafts.speculate, drafts.draft, drafts.tokens, drafts.rows)
    )


class BundleEngine:
    """Engine of a bundle, which closes the bundle's session behind itself.

    Args:
        engine: the engine.
        stack: closes the session.
    """

    def __init__(self, engine: Engine, stack: contextlib.ExitStack) -> None:
        self._engine: Final = engine
        self._stack: Final = stack

    def check_room(self, count: int) -> None:
        """Checks whether the engine takes some requests now."""
        self._engine.check_room(count)

    def submit(self, request: TokenRequest, on_event: Callable[[Event], None]) -> Ticket:
        """Asks for an answer."""
        return self._engine.submit(request, on_event)

    def figures(self) -> EngineFigures:
        """Returns the engine's figures."""
        return self._engine.figures()

    def fault(self, seconds: float) -> str | None:
        """Returns why the engine cannot answer; None if it can."""
        return self._engine.fault(seconds)

    def drain(self, seconds: float) -> bool:
        """Takes no more requests, and returns whether those that run have ended in time."""
        return self._engine.drain(seconds)

    def close(self) -> None:
        """Ends running calls, and closes the session."""
        self._engine.close()
        self._stack.close()


def _created(bundle: Bundle) -> int:
    return int((bundle.path / _STAMPED[0]).stat().st_mtime)


def _stamp(directory: Path) -> object:
    """Returns a stamp that differs after a directory's bundle has changed; None while it holds none."""
    try:
        states = [(directory / name).stat() for name in _STAMPED]
    except OSError:
        return None
    return [(state.st_ino, state.st_mtime_ns, state.st_size) for state in states]
