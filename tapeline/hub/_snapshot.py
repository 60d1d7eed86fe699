"""Models and adapters of the hub as files of its cache."""

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from tapeline.cli import Progress, ProgressEvent, size_text
from tapeline.hub._download import Downloads, HeaderFiles, copy_small, recorded_sha256
from tapeline.hub._faults import UnreachableError, explained
from tapeline.hub._listing import HubFile, HubSettings, Listing, cached_listing, online_listing, write_ref
from tapeline.hub._names import HubError, HubName, ModelLocation, Need
from tapeline.hub._selection import adapter_files as files_of_adapter
from tapeline.hub._selection import gguf_files, module_files, only_gguf, safetensors_files, small_files
from transformer_core import CONFIG_FILE, MODULES_FILE, SentenceModule, read_modules
from transformer_core.checkpoints import INDEX_FILE, SINGLE_FILE, read_shard_names


class Snapshot:
    """One commit of a repository.

    All files are of the commit that the first answer named, wherever the branch moves meanwhile.

    Args:
        name: repository, revision and file.
        progress: receives bytes and warnings.
        settings: address of the hub and of its cache; None for those of the environment.

    Raises:
        HubError: the hub does not have the repository or does not list it, and the cache does not either.
    """

    def __init__(self, name: HubName, progress: Progress, settings: HubSettings | None = None) -> None:
        self._name: Final = name
        self._progress: Final = progress
        self._settings: Final = settings or HubSettings.from_environment()
        self._listing: Final = _listed(name, self._settings, progress)
        self._downloads: Final = Downloads(self._listing, self._settings, progress)

    @contextlib.contextmanager
    def model(self, need: Need) -> Iterator[ModelLocation]:
        """Yields the directory or the GGUF file of a model.

        Raises:
            HubError: the repository lacks the model, or a file differs from the listing.
        """
        wanted, small = self._name.file, small_files(self._listing)
        if wanted is not None or only_gguf(self._listing):
            weights, small = gguf_files(self._listing, wanted), []
        else:
            modules = self._modules()
            folder = f"{modules[0].path}/" if modules and modules[0].path else ""
            small = [*dict.fromkeys([*small, *module_files(self._listing, modules)])]
            if need == "config" and f"{folder}{CONFIG_FILE}" in self._listing.files:
                weights = []
            else:
                weights = safetensors_files(self._listing, self._shards, folder)
                if weights[0].name != f"{folder}{SINGLE_FILE}":
                    small.append(self._listing.files[f"{folder}{INDEX_FILE}"])
        headers_only = need != "weights" and bool(self._downloads.missing(weights))
        files = [*small, *([] if headers_only else weights)]
        self.fetch(files)
        with contextlib.ExitStack() as stack:
            directory = self._downloads.snapshot
            if headers_only:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tapeline-hub-")))
                self._fetch_headers(weights, small, directory)
            path = directory if not weights or small else directory / weights[0].name
            yield ModelLocation(path, self._facts([*small, *weights]))

    def adapter(self) -> ModelLocation:
        """Returns the directory of an adapter.

        Raises:
            HubError: the repository lacks an adapter, or a file differs from the listing.
        """
        files = files_of_adapter(self._listing)
        self.fetch(files)
        return ModelLocation(self._downloads.snapshot, self._facts(files))

    def fetch(self, files: Sequence[HubFile]) -> None:
        """Downloads files that the cache lacks, and notes which commit the revision is."""
        with explained(self._name, self._settings):
            self._downloads.fetch(files)
            if not self._listing.cached:
                write_ref(self._listing, self._settings)

    def _modules(self) -> Sequence[SentenceModule]:
        """Returns the modules of a sentence-transformers model; none of another model."""
        file = self._listing.files.get(MODULES_FILE)
        if file is None:
            return ()
        self.fetch([file])
        return read_modules(self._downloads.snapshot) or ()

    def _shards(self, index: HubFile) -> Collection[str]:
        self.fetch([index])
        return read_shard_names(self._downloads.snapshot / index.name)

    def _fetch_headers(self, weights: Sequence[HubFile], small: Sequence[HubFile], directory: Path) -> None:
        if self._listing.cached:
            raise HubError(f"the cache {self._settings.cache} lacks {weights[0].name}: go online to fetch it")
        missing = self._downloads.missing(weights)
        size = size_text(sum(file.size for file in missing))
        names = ", ".join(file.name for file in missing[:3]) + (" ..." if missing[3:] else "")
        self._progress(
            ProgressEvent(f"{self._listing.repository}: only headers are read; an export downloads {size} ({names})")
        )
        copy_small(small, self._downloads.snapshot, directory)
        with explained(self._name, self._settings):
            HeaderFiles(self._listing, self._settings, directory).fetch(weights)

    def _facts(self, files: Sequence[HubFile]) -> dict[str, object]:
        """Returns repository, revision, commit, and the SHA-256 of each file that the hub or a look at it tells."""
        hashes: dict[str, str] = {}
        for file in files:
            path = self._downloads.snapshot / file.name
            if file.sha256 is not None or path.is_file():
                hashes[file.name] = recorded_sha256(file, path)
        return {
            "repository": self._listing.repository,
            "revision": self._listing.revision,
            "commit": self._listing.commit,
            "sha256": hashes,
        }


def model_files(name: HubName, need: Need, progress: Progress) -> contextlib.AbstractContextManager[ModelLocation]:
    """Returns the files of a model; see ``Snapshot``."""
    return Snapshot(name, progress).model(need)


def adapter_files(name: HubName, progress: Progress) -> ModelLocation:
    """Returns the directory of an adapter; see ``Snapshot``."""
    return Snapshot(name, progress).adapter()


def _listed(name: HubName, settings: HubSettings, progress: Progress) -> Listing:
    """Returns the hub's listing, or that of the cache if the hub is not or cannot be asked."""
    try:
        if settings.offline:
            raise UnreachableError("the hub is not asked, for HF_HUB_OFFLINE is set")
        with explained(name, settings):
            return online_listing(name, settings)
    except UnreachableError as error:
        cached = cached_listing(name, settings)
        if cached is None:
            raise HubError(
                f"{error}; the cache {settings.cache} has no {name.repository} at {name.revision}"
            ) from error
        if not settings.offline:
            progress(ProgressEvent(f"warning: {error}; taken from the cache: commit {cached.commit[:12]}"))
        return cached
