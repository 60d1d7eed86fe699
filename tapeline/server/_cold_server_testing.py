"""Server of tests whose model is loaded when the test says so."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from tapeline.server._model import ServedModel
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._progress import LoadProgress
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, RunningServer, running, text_model


class SlowLoad:
    """Source of a model that is loaded when the test says so, on a clock of the test's own."""

    def __init__(self, directory: Path) -> None:
        """Begins at 100 s."""
        self.seconds = 100.0
        self.progress = LoadProgress(lambda: self.seconds)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self._directory = directory

    def load(self) -> ServedModel:
        """Returns the model when the test says so."""
        self.begun.set()
        assert self.go_on.wait(30)
        return text_model(self._directory, ScriptSlots([5] * 64, VOCABULARY))

    def source(self) -> ModelSource:
        """Returns the source."""
        return ModelSource("cold", self.load, progress=self.progress)


@contextlib.contextmanager
def cold_server(directory: Path, *keys: str) -> Iterator[tuple[RunningServer, SlowLoad]]:
    """Runs a server that loads a cold model, and behind it another one."""
    cold = SlowLoad(directory)
    behind = ModelSource("behind", lambda: text_model(directory, ScriptSlots([5] * 64, VOCABULARY), "behind"))
    with running([cold.source(), behind], ServerOptions(port=0, api_keys=keys), load=False) as server:
        loading = threading.Thread(target=server.service.models.load)
        loading.start()
        try:
            assert cold.begun.wait(30)
            yield server, cold
        finally:
            cold.go_on.set()
            loading.join()
