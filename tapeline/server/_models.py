"""The models of a server: loaded behind its back, found by name, replaced while they answer."""

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, TypeVar

from generation.engine import EngineFigures
from lang_core import ProcessError, TapelineError, checked_choices, near_names
from tapeline.server._classifying_model import Classifying
from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._errors import RequestError
from tapeline.server._log import Log
from tapeline.server._model import ServedModel, TextModel
from tapeline.server._paths import without_paths
from tapeline.server._progress import LoadProgress, LoadStep
from tapeline.server._ranking_model import Ranking
from tapeline.server._shortening import shortened
from tapeline.server._text_to_text_model import TextToTextModel
from tapeline.server._transcription_model import TranscriptionModel
from tapeline.server._verification import Verification, VerificationState

_RETRY: Final = 5.0  # seconds

M = TypeVar("M", bound=ServedModel | Ranking | Classifying)


@checked_choices
@dataclass(frozen=True, slots=True)
class ModelSource:
    """Model to be served.

    Attributes:
        name: name of the model.
        load: loads it; called once more for every reload.
        stamp: returns a value that differs when the model should be loaded again.
        end: ends the work that ``load`` waits for, now and later; any thread may call it.
        progress: progress of the load, which ``load`` writes.
        verification: verification that goes on after the load. When it has passed, the model is loaded once more.
        on_demand: True loads the model when a request names it, and unloads it when others need its memory.
        nbytes: memory of the loaded model; 0 if nobody asks.
        idle_seconds: time without requests after which a model on demand is unloaded; 0 never unloads it for that.
    """

    name: str
    load: Callable[[], ServedModel]
    stamp: Callable[[], object] = lambda: None
    end: Callable[[], object] = lambda: None
    progress: LoadProgress = field(default_factory=LoadProgress)
    verification: Verification = field(default_factory=Verification)
    on_demand: bool = False
    nbytes: int = 0
    idle_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelState:
    """State of a model.

    Attributes:
        name: name of the model.
        state: ``waiting`` before its load begins, ``loading``, ``ready``, ``unloaded`` until a request names a model on
            demand, or ``failed`` if it cannot be loaded.
        step: running step while the model is loaded; None otherwise.
        reload_failed: True if a later load failed, and the model is the one from before.
        reason: why it has failed, without paths; None otherwise.
        verification: state of the verification that goes on while the model answers; None if there was none.
    """

    name: str
    state: Literal["waiting", "loading", "ready", "unloaded", "failed"]
    step: LoadStep | None = None
    reload_failed: bool = False
    reason: str | None = None
    verification: VerificationState | None = None


class Models:
    """Models by name.

    Args:
        sources: models to load.
        log: is told of loads and failures.
        drain_seconds: time that the answers of a replaced model have to end.
        watchdog_seconds: time without progress after which a model with work counts as stuck; 0 never does.
        aliases: names of models by further names.
        memory: largest memory of loaded models, in bytes; None for no limit.
        wait_seconds: time that a load waits for models in use, whose memory it needs.

    Attributes:
        aliases: as given.
        failure: reason why loading failed for all models; None if one could, or if loading was ended.
    """

    def __init__(
        self,
        sources: Sequence[ModelSource],
        log: Log,
        drain_seconds: float = 600.0,
        watchdog_seconds: float = 60.0,
        aliases: Mapping[str, str] | None = None,
        memory: int | None = None,
        wait_seconds: float = 60.0,
    ) -> None:
        self._sources: Final = tuple(sources)
        self.aliases: Final = dict(aliases or {})
        self._log: Final = log
        self._drain_seconds: Final = drain_seconds
        self._watchdog_seconds: Final = watchdog_seconds
        self._memory: Final = memory
        self._wait_seconds: Final = wait_seconds
        self._failed: Final[dict[str, str]] = {}
        self._models: Final[dict[str, ServedModel]] = {}
        self._stamps: Final[dict[str, object]] = {}
        self._reloading: Final = threading.Lock()
        self._reload_failed: Final = set[str]()
        self._users: Final = collections.Counter[int]()  # requests by the id of the model
        self._wanted: Final = collections.Counter[str]()  # requests that wait for a model on demand, by its name
        self._used: Final[dict[str, float]] = {}  # when the last request to a model began or ended
        self._replacing: Final = threading.Condition()
        self._loading: str | None = None
        self._ended = False
        self.failure: TapelineError | None = None
        for source in self._sources:
            source.verification.on_end(partial(self._end_verification, source))

    @property
    def ready(self) -> bool:
        """True once every model that is not on demand is loaded or has failed, and one model at least can answer."""
        first = [source for source in self._sources if not source.on_demand]
        return (bool(self._models) or len(first) < len(self._sources)) and all(
            source.name in self._models or source.name in self._failed for source in first
        )

    def load(self) -> None:
        """Loads every model that is not on demand; blocks until that is done.

        A model that cannot be loaded does not delay others.

        Raises:
            TapelineError: all models failed to load, or loading was ended.
        """
        error: TapelineError | None = None
        for source in self._sources:
            if source.on_demand:
                continue
            self._loading = source.name
            try:
                with self._reloading:
                    self._load(source)
            except TapelineError as raised:
                error = raised
                if self._ended:
                    raise
                self._fail(source, raised)
        self._loading = None
        if error is not None and not self.ready:
            self.failure = error
            raise error

    def states(self) -> list[ModelState]:
        """Returns the state of every model, in the order of the sources."""
        return [self._state(source) for source in self._sources]

    def _state(self, source: ModelSource) -> ModelState:
        if source.name in self._models:
            verification = source.verification.state
            reason = self._unverified(source.name)
            state = "ready" if reason is None else "failed"
            return ModelState(source.name, state, None, source.name in self._reload_failed, reason, verification)
        if source.name in self._failed:
            return ModelState(source.name, "failed", reason=self._failed[source.name])
        if source.name != self._loading:
            unloaded = source.on_demand and not self._wanted[source.name]
            return ModelState(source.name, "unloaded" if unloaded else "waiting")
        step = source.progress.step()
        return ModelState(source.name, "loading", replace(step, text=without_paths(step.text)))

    def faults(self) -> Mapping[str, str]:
        """Returns why models cannot answer, by the name of the model: a dead or stuck engine."""
        faults = {model.name: model.fault(self._watchdog_seconds) for model in self.loaded()}
        return {name: without_paths(fault) for name, fault in faults.items() if fault is not None}

    def end_loading(self) -> None:
        """Ends loads that wait for something, such as an export; they fail then. Any thread may call it."""
        self._ended = True
        for source in self._sources:
            source.end()

    @checked_choices
    def reload(self, *, changed_only: bool = False) -> None:
        """Loads models again, lets the new ones take over, and closes the old ones when their answers have ended.

        If loading fails, the old one stays. Blocks until the new ones are there.

        Args:
            changed_only: whether to load only those with a different stamp.
        """
        with self._reloading:
            for source in self._sources:
                if source.on_demand and source.name not in self._models:
                    continue
                if not changed_only or self._changed(source):
                    self._replace(source)

    def _changed(self, source: ModelSource) -> bool:
        try:
            return source.stamp() != self._stamps.get(source.name)
        except Exception as error:  # noqa: BLE001 - one look that fails does not end the watching
            self._log.failure("watch failed", error, model=source.name)
            return False

    def close(self, seconds: float) -> None:
        """Waits for running answers and frees every model."""
        for model in self._models.values():
            model.drain(seconds)
        for model in self._models.values():
            model.close()

    def lease(self, find: Callable[[str | None], M], name: str | None) -> M:
        """Returns the model that ``find`` returns for a name. It is not closed until it was released.

        Between two looks at a model another one may take its place, so a request finds it once and keeps it.

        Raises:
            RequestError: there is none.
        """
        with self._replacing:
            model = find(name)
            loaded = _loaded(model)
            self._users[id(loaded)] += 1
            self._used[loaded.name] = time.monotonic()
            return model

    def release(self, model: ServedModel | Ranking | Classifying) -> None:
        """Gives back a model that ``lease`` returned."""
        model = _loaded(model)
        with self._replacing:
            self._users[id(model)] -= 1
            self._used[model.name] = time.monotonic()
            if not self._users[id(model)]:
                del self._users[id(model)]
                self._replacing.notify_all()

    @contextlib.contextmanager
    def wanted(self, name: str | None) -> Iterator[ModelSource | None]:
        """Keeps a model on demand from being unloaded for the block; yields its source if it must be loaded first.

        Args:
            name: name of a request; None for the only model.
        """
        source = self._on_demand(name)
        if source is None:
            yield None
            return
        with self._replacing:
            self._wanted[source.name] += 1
            loaded = source.name in self._models
        try:
            yield None if loaded else source
        finally:
            with self._replacing:
                self._wanted[source.name] -= 1
                self._replacing.notify_all()

    @checked_choices
    def load_wanted(self, source: ModelSource, *, again: bool = False) -> None:
        """Loads a model on demand, if it is not loaded; blocks until that is done.

        Args:
            source: the model.
            again: True tries also if the model has failed before and its bundle is the same.

        Raises:
            RequestError: it cannot be loaded, or models in use have the memory that it needs.
        """
        with self._reloading:
            if source.name in self._models:
                return
            if self._ended:
                raise RequestError("the server ends: ask again", status=503, code="unavailable", retry_after=1)
            if source.name in self._failed and not again and not self._changed(source):
                raise _unavailable(source.name, self._failed[source.name])
            self._make_room(source)
            self._loading = source.name
            try:
                self._load(source)
            except TapelineError as error:
                self._fail(source, error)
                raise _unavailable(source.name, self._failed[source.name]) from error
            finally:
                self._loading = None

    def unload(self, name: str) -> None:
        """Unloads a model on demand; does nothing if it is not loaded. Blocks until it is closed.

        Raises:
            RequestError: there is none of that name, or requests use it.
        """
        source = self._on_demand(name)
        if source is None:
            self.named(name)  # raises if there is none
            raise RequestError(f"model {name!r} is not loaded on demand, and stays loaded", param="model")
        with self._reloading:
            with self._replacing:
                model = self._models.get(source.name)
                if model is None:
                    return
                if self._in_use(source):
                    raise RequestError(
                        f"model {source.name!r} is in use: ask again when its requests have ended",
                        status=409,
                        param="model",
                        code="model_busy",
                    )
                del self._models[source.name]
            self._close_unloaded(model)

    def unload_idle(self) -> None:
        """Unloads models on demand that no request has used for their time. Does nothing while a model is loaded."""
        if not self._reloading.acquire(blocking=False):
            return
        try:
            while (model := self._take_idle()) is not None:
                self._close_unloaded(model)
        finally:
            self._reloading.release()

    @property
    def unloads_idle(self) -> bool:
        """True if a model may be unloaded after some time without requests."""
        return any(source.on_demand and source.idle_seconds for source in self._sources)

    def _on_demand(self, name: str | None) -> ModelSource | None:
        """Returns the source of a model on demand; None if the name is of none."""
        if name is None:
            only = self._sources[0] if len(self._sources) == 1 else None
            return only if only is not None and only.on_demand else None
        name = self.aliases.get(name, name)
        base = name.rpartition(":")[0]  # of a name with an adapter
        names = (name, self.aliases.get(base, base))
        return next((source for source in self._sources if source.on_demand and source.name in names), None)

    def _in_use(self, source: ModelSource) -> bool:
        """Returns whether requests use a loaded model, or wait for it."""
        return self._wanted[source.name] > 0 or id(self._models[source.name]) in self._users

    def _take_idle(self) -> ServedModel | None:
        """Takes a model out whose time without requests is over; returns None if there is none."""
        now = time.monotonic()
        with self._replacing:
            for source in self._sources:
                if source.on_demand and source.idle_seconds and source.name in self._models:
                    idle = now - self._used.get(source.name, now) >= source.idle_seconds
                    if idle and not self._in_use(source):
                        return self._models.pop(source.name)
        return None

    def _make_room(self, source: ModelSource) -> None:
        """Unloads the models used least lately, until another one fits into the memory.

        Raises:
            RequestError: it does not fit, or not within the time that a load waits.
        """
        if self._memory is None:
            return
        end = time.monotonic() + self._wait_seconds
        while True:
            with self._replacing:
                loaded = [one for one in self._sources if one.name in self._models]
                kept = sum(one.nbytes for one in loaded if not one.on_demand)
                if kept + source.nbytes > self._memory:
                    raise _too_large(source, kept, self._memory)
                if sum(one.nbytes for one in loaded) + source.nbytes <= self._memory:
                    return
                unused = [one for one in loaded if one.on_demand and not self._in_use(one)]
                if not unused:
                    left = end - time.monotonic()
                    if left <= 0 or not self._replacing.wait(left):
                        raise _no_room(source)
                    continue
                victim = min(unused, key=lambda one: self._used.get(one.name, 0.0))
                model = self._models.pop(victim.name)
            self._close_unloaded(model)

    def _close_unloaded(self, model: ServedModel) -> None:
        """Closes a model that no request uses and that was taken out."""
        model.drain(0.0)
        model.close()
        self._log.info("unloaded", model=model.name)

    def loaded(self) -> list[ServedModel]:
        """Returns every model that is loaded."""
        return list(self._models.values())

    def text_model(self, name: str | None) -> TextModel:
        """Returns the model that generates text under a name, or the only one without a name.

        Raises:
            RequestError: there is none.
        """
        self._refuse_text_to_text(name)
        return self._model(name, TextModel, "generates no text", "generates text")

    def completing_model(self, name: str | None) -> TextModel | TextToTextModel:
        """Returns the model that completes or answers texts under a name, or the only one without a name.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, (TextModel, TextToTextModel), "generates no text", "generates text")

    def _refuse_text_to_text(self, name: str | None) -> None:
        """Refuses an encoder-decoder in another route than that of completions.

        Raises:
            RequestError: the name is that of an encoder-decoder, or without a name only such are loaded.
        """
        loaded = self.loaded()
        if name is not None:
            model = self.named(name)
        else:
            model = loaded[0] if len(loaded) == 1 else None
        if isinstance(model, TextToTextModel):
            raise RequestError(
                f"model {model.name!r} is an encoder-decoder, which answers texts at /v1/completions: send the text "
                "there as `prompt`",
                param="model",
                code="wrong_model",
            )

    def adaptable(self, name: str | None) -> TextModel:
        """Returns the model that takes adapters under a name, or the only one that does.

        Raises:
            RequestError: there is none.
        """
        if name is None:
            takes = [one for one in self.loaded() if isinstance(one, TextModel) and one.adapters is not None]
            if len(takes) == 1:
                return takes[0]
        return self.text_model(name)

    def embedding_model(self, name: str | None) -> EmbeddingModel:
        """Returns the model that embeds texts under a name, or the only one without a name.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, EmbeddingModel, "embeds no sentences", "embeds sentences")

    def ranking_model(self, name: str | None) -> Ranking:
        """Returns the model that ranks documents under a name, or the only one without a name.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, Ranking, "ranks no documents", "ranks documents")

    def classifying_model(self, name: str | None) -> Classifying:
        """Returns the model that classifies texts under a name, or the only one where no name is given.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, Classifying, "classifies no texts", "classifies texts")

    def transcription_model(self, name: str | None) -> TranscriptionModel:
        """Returns the model that turns sound into text under a name, or the only one without a name.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, TranscriptionModel, "takes no sound", "takes sound")

    def named(self, name: str) -> ServedModel:
        """Returns a model of any kind.

        Raises:
            RequestError: there is none of that name.
        """
        name = self.aliases.get(name, name)
        if name in self._models:
            return self._models[name]
        if name in self._failed:
            raise _unavailable(name, self._failed[name])
        adapted = self._adapted(name)
        if adapted is not None:
            return adapted
        names = [*self._names(), *(entry.name for entry in self.adapted())]
        available = ", ".join(names) or "none yet"
        raise RequestError(
            f"model {shortened(name)!r} not found; available: {available}{near_names(name, names)}",
            status=404,
            param="model",
            code="model_not_found",
        )

    def adapted(self) -> list[TextModel]:
        """Returns every loaded model with each of its adapters, under names such as ``model:adapter``."""
        models = [model for model in self.loaded() if isinstance(model, TextModel) and model.adapters is not None]
        entries = [model.adapted(one.name) for model in models if model.adapters for one in model.adapters.listed()]
        return [entry for entry in entries if entry is not None]

    def _adapted(self, name: str) -> TextModel | None:
        """Returns a model with an adapter by ``model:adapter``, or by the adapter's name; None if there is none.

        Raises:
            RequestError: several models have an adapter of that name.
        """
        base, _, adapter = name.rpartition(":")
        model = self._models.get(self.aliases.get(base, base))
        adapted = model.adapted(adapter) if isinstance(model, TextModel) else None
        if adapted is not None:
            return adapted
        entries = [entry for entry in self.adapted() if entry.adapter is not None and entry.adapter.name == name]
        if len(entries) > 1:
            names = ", ".join(entry.name for entry in entries)
            raise RequestError(
                f"model: several models have an adapter {shortened(name)!r}: name one of {names}", param="model"
            )
        return entries[0] if entries else None

    def _names(self) -> list[str]:
        """Returns the names of models that are loaded or on demand."""
        return [source.name for source in self._sources if source.on_demand or source.name in self._models]

    def figures(self) -> Mapping[str, EngineFigures]:
        """Returns the figures of every engine, by the model's name."""
        models = [model for model in self.loaded() if isinstance(model, TextModel)]
        return {model.name: model.engine.figures() for model in models}

    def stalled_seconds(self) -> Mapping[str, float]:
        """Returns the time since the last progress of every model that has work, 0 for others, by the model's name."""
        return {model.name: model.stalled_seconds() for model in self.loaded()}

    def _model(self, name: str | None, kind: type[M] | tuple[type[M], ...], does_not: str, does: str) -> M:
        if name is not None:
            model = self.named(name)
            if not isinstance(model, kind):
                raise RequestError(f"model {name!r} {does_not}: name one that does", param="model", code="wrong_model")
            return self._answering(model)
        suited = [model for model in self.loaded() if isinstance(model, kind)]
        on_demand = len(self._sources) > 1 and any(source.on_demand for source in self._sources)
        if len(suited) == 1 and not on_demand:
            return self._answering(suited[0])
        names = ", ".join(self._names() if on_demand else [model.name for model in suited])
        message = f"model: name one; available: {names}" if names else f"no model that is served {does}"
        raise RequestError(message, status=400 if names else 404, param="model", code="model_not_found")

    def _answering(self, model: M) -> M:
        """Returns a model.

        Raises:
            RequestError: it cannot answer.
        """
        reason = self._unverified(_loaded(model).name)
        if reason is not None:
            raise _unavailable(model.name, reason)
        fault = model.fault(self._watchdog_seconds)
        if fault is not None:
            raise _unavailable(model.name, without_paths(fault))
        return model

    def _unverified(self, name: str) -> str | None:
        """Returns why the bundle of a loaded model is wrong, without paths; None without a failed verification."""
        error = next((source.verification.error for source in self._sources if source.name == name), None)
        return None if error is None else f"verification failed: {without_paths(str(error), look=True)}"

    def _end_verification(self, source: ModelSource) -> None:
        """Logs the end of a verification; if it has passed, the verified bundle takes over."""
        error = source.verification.error
        if error is not None:
            self._log.error("verification failed", model=source.name, error=str(error))
            return
        self._log.info("verified", model=source.name)
        with self._reloading:
            if not self._ended:
                self._replace(source)

    def _fail(self, source: ModelSource, error: TapelineError) -> None:
        """Notes and logs why a model cannot be loaded."""
        self._failed[source.name] = _reason(error)
        self._log.error("load failed", model=source.name, error=str(error))

    def _load(self, source: ModelSource) -> ServedModel | None:
        """Loads a model and returns the one that it takes the place of."""
        self._log.info("loading", model=source.name)
        source.progress.begin()
        stamp, model = self._made(source)
        self._stamps[source.name] = stamp
        with self._replacing:
            before = self._models.get(source.name)
            self._models[source.name] = model
        self._failed.pop(source.name, None)
        self._reload_failed.discard(source.name)
        self._log.info("loaded", model=source.name, context=model.context)
        return before

    def _made(self, source: ModelSource) -> tuple[object, ServedModel]:
        """Loads a model, and returns it with its stamp of before.

        Raises:
            TapelineError: it cannot be loaded, for whatever reason.
        """
        try:
            stamp = self._stamps[source.name] = source.stamp()  # one that fails is not tried again until it changes
            return stamp, source.load()
        except TapelineError:
            raise
        except Exception as error:
            self._log.failure("fault", error, model=source.name)
            raise ProcessError(
                f"{source.name} cannot be loaded: {type(error).__name__}: {error}: report it with the server's log"
            ) from error

    def _replace(self, source: ModelSource) -> None:
        try:
            before = self._load(source)
        except TapelineError as error:
            if self._ended:
                return  # the server's end ended the load
            if source.name in self._models:
                self._reload_failed.add(source.name)
                self._log.error("reload failed", model=source.name, error=str(error))
            else:
                self._fail(source, error)
            return
        if before is not None:
            threading.Thread(target=self._retire, args=[before], daemon=True).start()

    def _retire(self, model: ServedModel) -> None:
        end = time.monotonic() + self._drain_seconds
        with self._replacing:  # requests that are prepared are not in the model's queue yet
            self._replacing.wait_for(lambda: id(model) not in self._users, self._drain_seconds)
        model.drain(max(0.0, end - time.monotonic()))
        model.close()
        self._log.info("retired", model=model.name)


def _loaded(model: ServedModel | Ranking | Classifying) -> ServedModel | Ranking | Classifying:
    """Returns the model that was loaded, of a model with an adapter."""
    return model if not isinstance(model, TextModel) or model.owner is None else model.owner


def _reason(error: TapelineError) -> str:
    """Returns why a model has failed, for clients."""
    cause = error.__cause__
    if isinstance(error, ProcessError) and cause is not None and not isinstance(cause, TapelineError):
        return f"it cannot be loaded: an unexpected {type(cause).__name__}, which the server's log has"
    return without_paths(str(error), look=True)


def _too_large(source: ModelSource, kept: int, memory: int) -> RequestError:
    beside = f", beside {kept} bytes of models that stay loaded" if kept else ""
    return RequestError(
        f"model {source.name!r} needs {source.nbytes} bytes of memory{beside}; the server has {memory} bytes for "
        "models: start it with a larger models_memory",
        status=503,
        param="model",
        code="model_too_large",
    )


def _no_room(source: ModelSource) -> RequestError:
    return RequestError(
        f"model {source.name!r} needs the memory of models that are in use: ask again",
        status=503,
        param="model",
        code="models_busy",
        retry_after=_RETRY,
    )


def _unavailable(name: str, reason: str) -> RequestError:
    return RequestError(
        f"model {shortened(name)!r} cannot answer: {reason}", status=503, param="model", code="model_failed"
    )
