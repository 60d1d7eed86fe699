"""Bundles in the user's cache: exported once per model, options and version."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Unpack

from lang_core import InputError, checked_choices, make_private, user_cache_directory
from run_iree import evict, host_cpu
from tapeline.bundle import LOCKS, MARK, Bundle, Steps, is_kept, keep_cached
from tapeline.cli import Progress, ProgressEvent, no_progress, parse_size
from tapeline.exporting._api import export, export_early
from tapeline.exporting._options import ExportKeywords
from tapeline.exporting._producer import producer
from tapeline.exporting._replacing import model_title
from tapeline.exporting._source import open_source
from tapeline.hub import resolve_model
from tapeline.runners import RopeLengths
from tapeline.text import ChatTemplate, NoTemplateError
from transformer_core.models import DecoderLM, load_model

BUNDLE_CACHE: Final = "TAPELINE_BUNDLE_CACHE"
"""Variable of the environment with the bound of the cache of bundles."""

_DEFAULT_BOUND: Final = "64GiB"
_SHARD: Final = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


@checked_choices
def cached_export(
    model: str | os.PathLike[str],
    *,
    progress: Progress = no_progress,
    base: str | os.PathLike[str] = "",
    again: bool = False,
    chats: bool = False,
    or_slots: int | None = None,
    **options: Unpack[ExportKeywords],
) -> Bundle:
    """Returns a verified bundle of a model from the user's cache, which is exported if it is not there.

    A bundle is found by the model's files (paths, sizes, times of change), the options, the versions and the CPU. The
    least recently used bundles beyond ``$TAPELINE_BUNDLE_CACHE`` (64 GiB) are removed, unless a process has them. While
    another process exports the same bundle, this one waits.

    Args:
        model: as for ``export``, and so are progress, base and options.
        progress: receives steps, warnings and bytes.
        base: directory that relative paths start from.
        again: True exports also if the bundle is there.
        chats: True refuses a model without a chat template before it is exported.
        or_slots: takes the bundle with so many slots in place of an export, if the cache has it and its answers are the
            same: a server that has run before leaves it there. It is not if RoPE depends on the length of a sequence.
        **options: fields of ``ExportOptions``.

    Raises:
        NoTemplateError: ``chats``, and the model lacks a chat template.
        InputError: ``export`` refuses the options, or the cache cannot be written.
    """
    return cached_export_early(
        model, None, progress=progress, base=base, again=again, chats=chats, or_slots=or_slots, **options
    )


@checked_choices
def cached_export_early(
    model: str | os.PathLike[str],
    on_unverified: Callable[[Path], object] | None,
    *,
    progress: Progress = no_progress,
    base: str | os.PathLike[str] = "",
    again: bool = False,
    chats: bool = False,
    or_slots: int | None = None,
    slots_if_any: int | None = None,
    **options: Unpack[ExportKeywords],
) -> Bundle:
    """Returns a verified bundle as ``cached_export`` does, and shows a bundle that it exports before it is verified.

    Args:
        model: as for ``cached_export``, and so are the other arguments and errors.
        on_unverified: receives a directory with links to the files of the bundle, beside the cached bundles. The caller
            removes the directory, and locks it (``flock``) as long as it is used. The cache has the bundle when it is
            verified, and has none if it is not.
        progress: receives steps, warnings and bytes.
        base: directory that relative paths start from.
        again: True exports also if the bundle is there.
        chats: True refuses a model without a chat template before it is exported.
        or_slots: as for ``cached_export``.
        slots_if_any: ``slots`` of a model whose sequences have caches; others, such as embedders, are exported without.
        **options: fields of ``ExportOptions``.

    Raises:
        NoTemplateError: ``chats``, and the model lacks a chat template.
        InputError: as ``cached_export``.
    """
    name = os.fspath(model)
    limit = parse_size(BUNDLE_CACHE, os.environ.get(BUNDLE_CACHE) or _DEFAULT_BOUND)
    with resolve_model(name, Path(base, name), "weights", progress) if name != "demo" else _demo() as location:
        files = location.path if location else None
        key = _key(files, options)
        with_slots: ExportKeywords = options | {"slots": or_slots}
        other = None if or_slots is None or again else _key(files, with_slots)
        rows: ExportKeywords = options | {"slots": slots_if_any}
        key_with_rows = key if slots_if_any is None else _key(files, rows)
    directory, title = user_cache_directory() / "bundles", model_title(name)[:60]
    if slots_if_any is not None and (
        (directory / f"{title}-{key_with_rows[:16]}").exists() or _has_rows(name, Path(base, name))
    ):
        key, options = key_with_rows, rows
    path = directory / f"{title}-{key[:16]}"
    if other is not None and not path.exists():
        served = _served_at(directory / f"{title}-{other[:16]}")
        if served is not None:
            return served
    with _locked(directory, path.name, progress):
        bundle = None if again else _bundle_at(path, progress)
        if bundle is None:
            if chats:
                _check_template(name, Path(base, name))
            keywords: ExportKeywords = options | {"overwrite": True}
            if on_unverified is None:
                bundle = export(name, path, progress=progress, base=base, **keywords)
            else:
                bundle = export_early(
                    name,
                    path,
                    lambda staging: _show(staging, path, on_unverified),
                    progress=progress,
                    base=base,
                    **keywords,
                )
            evict(directory, limit, keep=path, is_used=is_kept)
        os.utime(path)
        keep_cached(bundle)
    return bundle


def _show(staging: Path, path: Path, on_unverified: Callable[[Path], object]) -> None:
    """Makes links to the files of a future bundle at ``path``; none if the file system lacks links."""
    directory = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".unverified", dir=path.parent))
    try:
        shutil.copytree(staging, directory, copy_function=os.link, ignore=_rewritten, dirs_exist_ok=True)
        shutil.copyfile(staging / MARK, directory / MARK)
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        return
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    on_unverified(directory)


def _rewritten(_: str, names: list[str]) -> set[str]:
    """Returns the names of files that the export writes again or removes."""
    return {MARK, Steps.FILE} & {*names}


def _has_rows(model: str, path: Path) -> bool:
    """Returns whether sequences of a model have caches, of which a server can keep several as rows."""
    if model == "demo":
        return True
    with open_source(model, path, False) as source:
        return isinstance(load_model(source.directory, weights=False), DecoderLM)


def _check_template(model: str, path: Path) -> None:
    """Checks that a model has a chat template, before any work is done for it.

    Raises:
        NoTemplateError: it has none.
        InputError: the template is damaged.
    """
    with open_source(model, path, False) as source:
        try:
            ChatTemplate.find(source.directory, tokens={})
        except NoTemplateError as error:
            raise NoTemplateError(str(error).replace(str(source.directory), model)) from error


@contextlib.contextmanager
def _demo() -> Iterator[None]:
    """Yields None: the built-in model changes with the version only."""
    yield None


def _bundle_at(path: Path, progress: Progress) -> Bundle | None:
    """Returns the bundle of a directory; None if there is none, or a file of it is missing or damaged.

    A damaged bundle is removed: an export into any other directory keeps files that are not a bundle's.
    """
    if not os.path.lexists(path):
        return None
    damaged = MARK
    with contextlib.suppress(InputError):
        bundle = Bundle(path)
        name = bundle.checks.damaged()
        if name is None:
            return bundle
        damaged = name
    progress(ProgressEvent(f"{path / damaged} in the cache is missing or damaged: exporting the model again ..."))
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)  # the export names a file that cannot be removed
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return None


def _served_at(path: Path) -> Bundle | None:
    """Returns a bundle with slots whose answers are those of one sequence; None if there is none."""
    try:
        bundle = Bundle(path)
        keep_cached(bundle)
        os.utime(path)
        damaged = bundle.checks.damaged()
    except (InputError, OSError):
        return None
    lengths = RopeLengths(bundle.config.model)
    alike = lengths.regime_of(1) == lengths.regime_of(bundle.config.model["max_sequence"])
    return bundle if alike and damaged is None else None


def _key(path: Path | None, options: ExportKeywords) -> str:
    """Returns the digest of everything that a bundle depends on."""
    files = [] if path is None else [_told(file) for file in _files(path)]
    fields: dict[str, Any] = {
        "files": files,
        "options": dict(options),
        "producer": producer(),
        "cpu": asdict(host_cpu()),
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()


def _files(path: Path) -> list[Path]:
    """Returns a model's files: those of a directory, a GGUF file, or all parts of a split one."""
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.is_file())
    if _SHARD.search(path.name):
        return sorted(path.parent.glob(_SHARD.sub("-*-of-*.gguf", path.name)))
    return [path]


def _told(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def _locked(directory: Path, name: str, progress: Progress) -> Iterator[None]:
    """Keeps other processes from exporting the same bundle.

    Raises:
        InputError: the cache cannot be written, or another user can write it.
    """
    locks = directory.with_name(LOCKS)
    try:
        for folder in (directory, locks):
            make_private(folder)
        descriptor = os.open(locks / name, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"the cache of bundles {directory} cannot be written ({error.strerror}): set XDG_CACHE_HOME to a directory "
            f"that can, or export the model and name the `bundle`"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(ProgressEvent("another process exports this model: waiting ..."))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
