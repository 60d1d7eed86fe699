"""The models of a server: loaded behind its back, found by name, replaced while they answer."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from lang_core import ProcessError, TapelineError, checked_choices, near_names
from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._errors import RequestError
from tapeline.server._log import Log
from tapeline.server._model import ServedModel, TextModel
from tapeline.server._progress import LoadProgress, LoadStep
from tapeline.server._ranking_model import Ranking
from tapeline.server._transcription_model import TranscriptionModel
from tapeline.serving import EngineFigures

M = TypeVar("M", bound=ServedModel | Ranking)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Model to be served.

    Attributes:
        name: name of the model.
        load: loads it; called once more for every reload.
        stamp: returns what differs once the model should be loaded again.
        end: ends what ``load`` waits for, now and later; any thread may call it.
        progress: progress of the load, which ``load`` writes.
    """

    name: str
    load: Callable[[], ServedModel]
    stamp: Callable[[], object] = lambda: None
    end: Callable[[], object] = lambda: None
    progress: LoadProgress = field(default_factory=LoadProgress)


@dataclass(frozen=True, slots=True)
class ModelState:
    """State of a model.

    Attributes:
        name: name of the model.
        state: ``waiting`` before its load begins, ``loading``, ``ready``, or ``failed`` if it cannot be loaded.
        step: running step while the model is loaded; None otherwise.
        reload_failed: True if a later load failed, and the model is the one from before.
    """

    name: str
    state: Literal["waiting", "loading", "ready", "failed"]
    step: LoadStep | None = None
    reload_failed: bool = False


class Models:
    """Models by name.

    Args:
        sources: what to load.
        log: is told of loads and failures.
        drain_seconds: time that the answers of a replaced model have to end.

    Attributes:
        failure: why the first load failed; None where it did not, or was ended.
    """

    def __init__(self, sources: Sequence[ModelSource], log: Log, drain_seconds: float = 600.0) -> None:
        self._sources: Final = tuple(sources)
        self._log: Final = log
        self._drain_seconds: Final = drain_seconds
        self._models: Final[dict[str, ServedModel]] = {}
        self._stamps: Final[dict[str, object]] = {}
        self._reloading: Final = threading.Lock()
        self._reload_failed: Final = set[str]()
        self._loading: str | None = None
        self._ended = False
        self.failure: TapelineError | None = None

    @property
    def ready(self) -> bool:
        """True once every model is loaded."""
        return len(self._models) == len(self._sources)

    def load(self) -> None:
        """Loads every model; blocks until that is done.

        Raises:
            TapelineError: one cannot be loaded.
        """
        try:
            for source in self._sources:
                self._loading = source.name
                self._load(source)
        except TapelineError as error:
            if not self._ended:
                self.failure = error
            raise

    def states(self) -> list[ModelState]:
        """Returns the state of every model, in the order of the sources."""
        return [self._state(source) for source in self._sources]

    def _state(self, source: ModelSource) -> ModelState:
        if source.name in self._models:
            return ModelState(source.name, "ready", reload_failed=source.name in self._reload_failed)
        if source.name != self._loading:
            return ModelState(source.name, "waiting")
        if self.failure is not None:
            return ModelState(source.name, "failed")
        return ModelState(source.name, "loading", source.progress.step())

    def end_loading(self) -> None:
        """Ends loads that wait for something, such as an export; they fail then. Any thread may call it."""
        self._ended = True
        for source in self._sources:
            source.end()

    @checked_choices
    def reload(self, *, changed_only: bool = False) -> None:
        """Loads models again, lets the new ones take over, and closes the old ones when their answers have ended.

        Where one cannot be loaded, the old one stays. Blocks until the new ones are there.

        Args:
            changed_only: whether to load those only whose stamp differs.
        """
        with self._reloading:
            for source in self._sources:
                if not changed_only or source.stamp() != self._stamps[source.name]:
                    self._replace(source)

    def close(self, seconds: float) -> None:
        """Waits for running answers and frees every model."""
        for model in self._models.values():
            model.drain(seconds)
        for model in self._models.values():
            model.close()

    def loaded(self) -> list[ServedModel]:
        """Returns every model that is loaded."""
        return list(self._models.values())

    def text_model(self, name: str | None) -> TextModel:
        """Returns the model that generates text under a name, or the only one where no name is given.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, TextModel, "generates no text", "generates text")

    def embedding_model(self, name: str | None) -> EmbeddingModel:
        """Returns the model that embeds texts under a name, or the only one where no name is given.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, EmbeddingModel, "embeds no sentences", "embeds sentences")

    def ranking_model(self, name: str | None) -> Ranking:
        """Returns the model that ranks documents under a name, or the only one where no name is given.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, Ranking, "ranks no documents", "ranks documents")

    def transcription_model(self, name: str | None) -> TranscriptionModel:
        """Returns the model that turns sound into text under a name, or the only one where no name is given.

        Raises:
            RequestError: there is none.
        """
        return self._model(name, TranscriptionModel, "takes no sound", "takes sound")

    def named(self, name: str) -> ServedModel:
        """Returns a model of any kind.

        Raises:
            RequestError: there is none of that name.
        """
        if name in self._models:
            return self._models[name]
        available = ", ".join(self._models) or "none yet"
        raise RequestError(
            f"model {name[:80]!r} not found; available: {available}{near_names(name[:80], self._models)}",
            status=404,
            param="model",
            code="model_not_found",
        )

    def figures(self) -> Mapping[str, EngineFigures]:
        """Returns the figures of every engine, by the model's name."""
        models = [model for model in self.loaded() if isinstance(model, TextModel)]
        return {model.name: model.engine.figures() for model in models}

    def _model(self, name: str | None, kind: type[M], does_not: str, does: str) -> M:
        if name is not None:
            model = self.named(name)
            if not isinstance(model, kind):
                raise RequestError(f"model {name!r} {does_not}: name one that does", param="model", code="wrong_model")
            return model
        suited = [model for model in self.loaded() if isinstance(model, kind)]
        if len(suited) == 1:
            return suited[0]
        names = ", ".join(model.name for model in suited)
        message = f"model: name one; available: {names}" if names else f"no model that is served {does}"
        raise RequestError(message, status=400 if names else 404, param="model", code="model_not_found")

    def _load(self, source: ModelSource) -> ServedModel | None:
        """Loads a model and returns the one that it takes the place of."""
        stamp = source.stamp()
        self._log.info("loading", model=source.name)
        source.progress.begin()
        model = self._made(source)
        self._stamps[source.name] = stamp
        before = self._models.get(source.name)
        self._models[source.name] = model
        self._reload_failed.discard(source.name)
        self._log.info("loaded", model=source.name, context=model.context)
        return before

    def _made(self, source: ModelSource) -> ServedModel:
        """Loads a model.

        Raises:
            TapelineError: it cannot be loaded, for whatever reason.
        """
        try:
            return source.load()
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
            self._stamps[source.name] = source.stamp()  # it is not tried again until it changes again
            self._reload_failed.add(source.name)
            self._log.error("reload failed", model=source.name, error=str(error))
            return
        if before is not None:
            threading.Thread(target=self._retire, args=[before], daemon=True).start()

    def _retire(self, model: ServedModel) -> None:
        model.drain(self._drain_seconds)
        model.close()
        self._log.info("retired", model=model.name)
