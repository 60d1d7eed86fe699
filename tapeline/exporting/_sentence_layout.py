"""Directories of sentence-transformers in any layout, as the one that models are read from.

Old ones have the model in ``0_Transformer``; others name the directories of their modules as they like.
"""

import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lang_core import InputError, read_json
from transformer_core import CONFIG_FILE, MODULES_FILE, SENTENCE_CONFIGS, SentenceModule, read_modules
from transformer_core.checkpoints import SINGLE_FILE

_TRANSFORMER: Final = "Transformer"
_WITHOUT_FILES: Final = ("Normalize", "Dropout")
_WITH_WEIGHTS: Final = ("Dense", "LayerNorm")
_READ: Final = ("Pooling", "LogitScore", "MultiVectorMask", *_WITH_WEIGHTS)
_OF_ALL: Final = "config_sentence_transformers.json"


def in_own_layout(directory: Path, stack: contextlib.ExitStack, *, with_weights: bool) -> Path:
    """Returns a directory in the layout that models are read from: itself, or one of links that ``stack`` removes.

    Args:
        directory: directory of a model, of sentence-transformers or not.
        stack: removes the links.
        with_weights: whether the weights will be read.

    Raises:
        ConfigError: modules.json is damaged.
        InputError: it names a directory that is not there, or that has its weights in a pickle only.
    """
    modules = read_modules(directory)
    if modules is None or not modules or modules[0].kind != _TRANSFORMER:
        return directory
    model = directory / modules[0].path
    for module in modules[1:]:
        _check_files(directory, module, with_weights=with_weights)
    settings = next((name for name in SENTENCE_CONFIGS if (model / name).exists()), SENTENCE_CONFIGS[0])
    if settings == SENTENCE_CONFIGS[0] and all(_in_place(module) for module in modules):
        return directory
    if not (model / CONFIG_FILE).exists():
        raise InputError(
            f"{directory / MODULES_FILE} names the directory {modules[0].path!r} of the Transformer, and there is no "
            f"{CONFIG_FILE} in it: fetch the model again"
        )
    own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tapeline-sentences-")))
    _link_files(model, own, but=(MODULES_FILE, *SENTENCE_CONFIGS))
    if (model / settings).exists():
        (own / SENTENCE_CONFIGS[0]).symlink_to((model / settings).absolute())
    if modules[0].path and (directory / _OF_ALL).exists():
        (own / _OF_ALL).unlink(missing_ok=True)
        (own / _OF_ALL).symlink_to((directory / _OF_ALL).absolute())
    for module in modules[1:]:
        if (directory / module.path).is_dir() and module.path:
            (own / module.own_path).mkdir()
            _link_files(directory / module.path, own / module.own_path)
    (own / MODULES_FILE).write_text(json.dumps(_entries(directory, modules)), encoding="utf-8")
    return own


def _check_files(directory: Path, module: SentenceModule, *, with_weights: bool) -> None:
    """Checks that the files of a module are there; without them, messages would name the directory of links."""
    folder = directory / module.path
    if module.kind in _WITHOUT_FILES or module.kind not in _READ:
        return
    if not (folder / CONFIG_FILE).exists():
        raise InputError(
            f"{folder / CONFIG_FILE}: no such file: modules.json names a module {module.kind}, which it describes: "
            "fetch the model again"
        )
    if with_weights and module.kind in _WITH_WEIGHTS and not (folder / SINGLE_FILE).exists():
        pickles = ", ".join(sorted(path.name for path in folder.glob("*.bin")))
        raise InputError(
            f"{folder}: no {SINGLE_FILE}, but {pickles}: a pickle can run code and is never loaded: load the model "
            "with sentence-transformers, save it by save_pretrained, and give that directory"
            if pickles
            else f"{folder}: no {SINGLE_FILE}: fetch the model again"
        )


def _in_place(module: SentenceModule) -> bool:
    return module.path == module.own_path or module.kind in _WITHOUT_FILES


def _link_files(source: Path, target: Path, but: Sequence[str] = ()) -> None:
    for path in source.iterdir():
        if path.is_file() and path.name not in but:
            (target / path.name).symlink_to(path.absolute())


def _entries(directory: Path, modules: Sequence[SentenceModule]) -> list[dict[str, object]]:
    """Returns the entries of modules.json with the paths of our layout."""
    entries = read_json(directory / MODULES_FILE, "fetch the model again")
    return [{**entry, "path": module.own_path} for entry, module in zip(entries, modules, strict=True)]
