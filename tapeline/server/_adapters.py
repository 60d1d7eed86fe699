"""LoRA adapters of a served model: loaded and unloaded while it answers, and chosen by requests."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from generation.engine import RowAdapter
from lang_core import InputError, TapelineError
from tapeline.bundle import sha256_of
from tapeline.runners import AdapterTables
from tapeline.server._errors import RequestError
from tapeline.server._paths import without_paths
from transformer_core.checkpoints import Adapter, adapter_factors

_FILES: Final = ("adapter_config.json", "adapter_model.safetensors")


class AdapterNames:
    """Directories of a model's adapters by name. They outlive a load of the model."""

    def __init__(self, paths: Mapping[str, Path] | None = None) -> None:
        """Begins with some adapters."""
        self._paths: Final = dict(paths or {})
        self._lock: Final = threading.Lock()

    def copy(self) -> "AdapterNames":
        """Returns the same names, for another model."""
        return AdapterNames(self.paths())

    def paths(self) -> dict[str, Path]:
        """Returns the directories by name."""
        with self._lock:
            return dict(self._paths)

    def note(self, name: str, path: Path | None) -> None:
        """Notes an adapter that was loaded, or with None unloaded."""
        with self._lock:
            if path is None:
                self._paths.pop(name, None)
            else:
                self._paths[name] = path


class ServedAdapter:
    """Adapter that requests may choose.

    Attributes:
        name: name of the adapter.
        row: the adapter as the engine takes it.
        created: when it was loaded, in seconds since 1970.
    """

    def __init__(self, name: str, row: RowAdapter) -> None:
        """Begins without answers."""
        self.name: Final = name
        self.row: Final = row
        self.created: Final = time.time()
        self._lock: Final = threading.Lock()
        self._answers = 0
        self._unloaded = False

    @property
    def unloaded(self) -> bool:
        """True if requests may not choose it any more."""
        return self._unloaded

    @property
    def free(self) -> bool:
        """True if it was unloaded, and no answer runs with it."""
        with self._lock:
            return self._unloaded and not self._answers

    def begin(self) -> None:
        """Notes an answer that is asked for.

        Raises:
            RequestError: the adapter was unloaded meanwhile.
        """
        with self._lock:
            if self._unloaded:
                raise RequestError(
                    f"adapter {self.name!r} was unloaded: choose another",
                    status=404,
                    param="model",
                    code="model_not_found",
                )
            self._answers += 1

    def end(self) -> None:
        """Notes that an answer has ended."""
        with self._lock:
            self._answers -= 1

    def unload(self) -> None:
        """Refuses further answers."""
        with self._lock:
            self._unloaded = True


class ModelAdapters:
    """Adapters of one loaded model. Any thread may call it.

    Args:
        model: name of the model.
        tables: the model's tables.
        names: names that outlive the load.
    """

    def __init__(self, model: str, tables: AdapterTables, names: AdapterNames) -> None:
        self._model: Final = model
        self._tables: Final = tables
        self._names: Final = names
        self._lock: Final = threading.Lock()
        self._loading: Final = threading.Lock()
        self._numbers: Final[dict[int, ServedAdapter]] = {}

    def listed(self) -> list[ServedAdapter]:
        """Returns the adapters that requests may choose, in the order of their loads."""
        with self._lock:
            live = [one for one in self._numbers.values() if not one.unloaded]
        return sorted(live, key=lambda one: one.created)

    def get(self, name: str) -> ServedAdapter | None:
        """Returns the adapter of a name; None if there is none."""
        return next((one for one in self.listed() if one.name == name), None)

    def load_all(self) -> None:
        """Loads the adapters that the model is to begin with.

        Raises:
            InputError: one of them does not fit the model, or they are too many.
        """
        for name, path in self._names.paths().items():
            self._load(name, path)

    def load(self, name: str, path: Path) -> None:
        """Loads an adapter from a directory of PEFT.

        Raises:
            RequestError: the name is taken, the model has no place for a further adapter, or it does not fit the
                model.
        """
        with self._loading:
            if self.get(name) is not None:
                raise RequestError(
                    f"lora_name: adapter {name!r} of {self._model!r} is loaded already: unload it first",
                    param="lora_name",
                    code="adapter_loaded",
                )
            try:
                self._load(name, path)
            except RequestError:
                raise
            except TapelineError as error:
                raise RequestError(
                    f"lora_path: {without_paths(str(error), look=True)}", param="lora_path", code="adapter_invalid"
                ) from error
            self._names.note(name, path)

    def unload(self, name: str) -> None:
        """Unloads an adapter; its running answers end as they would.

        Raises:
            RequestError: there is none of that name.
        """
        with self._loading:
            adapter = self.get(name)
            if adapter is None:
                names = ", ".join(one.name for one in self.listed()) or "none"
                raise RequestError(
                    f"lora_name: adapter {name!r} of {self._model!r} not found; loaded: {names}",
                    status=404,
                    param="lora_name",
                    code="adapter_not_found",
                )
            adapter.unload()
            self._names.note(name, None)

    def _load(self, name: str, path: Path) -> None:
        number = self._free_number(name)
        with Adapter(path) as adapter:
            tables = self._tables
            factors = adapter_factors(adapter, tables.shapes, tables.places, tables.rank)
        key = " ".join(sha256_of(path / file) for file in _FILES)
        tables.put(number, factors)
        with self._lock:
            self._numbers[number] = ServedAdapter(name, RowAdapter(number, key))

    def _free_number(self, name: str) -> int:
        with self._lock:
            for number in range(1, self._tables.count + 1):
                if number not in self._numbers or self._numbers[number].free:
                    self._numbers.pop(number, None)
                    return number
        raise InputError(
            f"adapter {name!r}: model {self._model!r} keeps {self._tables.count} adapters at once, and has as many: "
            f"unload one, or export the bundle with adapters={self._tables.count + 1}"
        )
