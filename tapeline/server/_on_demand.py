"""Loads of models on demand: one after the other, in a thread of their own, for all requests that wait."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from lang_core import checked_choices
from tapeline.server._errors import RequestError
from tapeline.server._models import Models, ModelSource


class OnDemandLoads:
    """Loads of models on demand, in the order in which they are asked for.

    Args:
        models: the models.
        seconds: longest time that a request waits for a load.
    """

    def __init__(self, models: Models, seconds: float) -> None:
        self._models: Final = models
        self._seconds: Final = seconds
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="models")
        self._tasks: Final[dict[str, asyncio.Future[None]]] = {}

    @checked_choices
    async def load(self, source: ModelSource, *, again: bool = False) -> None:
        """Waits until a model is loaded; requests for the same model wait for one load.

        Args:
            source: the model.
            again: True tries also if the model has failed before.

        Raises:
            RequestError: it cannot be loaded, or takes too long.
        """
        task = self._tasks.get(source.name)
        if task is None:
            work = partial(self._models.load_wanted, source, again=again)
            task = self._tasks[source.name] = asyncio.get_running_loop().run_in_executor(self._thread, work)
            task.add_done_callback(partial(self._end, source.name))
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(task)
        except TimeoutError as error:
            raise RequestError(
                f"model {source.name!r} is still being loaded: ask again, or see /health for the progress",
                status=504,
                param="model",
                code="deadline_exceeded",
            ) from error

    async def unload(self, name: str) -> None:
        """Unloads a model, after the loads that were asked for before.

        Raises:
            RequestError: there is none of that name, it stays loaded, or requests use it.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._models.unload, name)

    async def unload_idle(self) -> None:
        """Unloads models that have had no requests for their time."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._models.unload_idle)

    def _end(self, name: str, task: asyncio.Future[None]) -> None:
        del self._tasks[name]
        if not task.cancelled():
            task.exception()  # whoever waits for it has it; nobody may be left
