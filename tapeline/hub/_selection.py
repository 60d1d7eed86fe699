"""Files of a repository that an export needs."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Final

from lang_core import near_names
from tapeline.cli import size_text
from tapeline.hub._listing import HubFile, Listing
from tapeline.hub._names import HubError
from tapeline.text import tokenizer_files
from transformer_core import CONFIG_FILE, SENTENCE_CONFIGS, SENTENCE_FILES, SENTENCE_WEIGHTS, SentenceModule
from transformer_core.checkpoints import INDEX_FILE, SINGLE_FILE

ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
# Beside the weights of a model, if they are there; and the tokenizer's files.
_SMALL: Final = (
    CONFIG_FILE,
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    *SENTENCE_FILES,
    *SENTENCE_CONFIGS,
    *SENTENCE_WEIGHTS,
)
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_GGUF: Final = ".gguf"
# GGUF files that hold no model of their own.
_BESIDE: Final = re.compile(r"(^|/)(mmproj|imatrix)[^/]*$|[-_.](mmproj|imatrix)\.gguf$", re.IGNORECASE)
_PART: Final = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
_QUANTISATION: Final = re.compile(
    r"(?<![a-z0-9])(?:I?Q[0-9]_[A-Z0-9_]+|TQ[0-9]_0|MXFP4[A-Z_]*|BF16|F16|F32)(?![a-z0-9])", re.I
)
_SHOWN: Final = 12

ReadShards = Callable[[HubFile], Collection[str]]
"""Fetches an index and returns the names of its shards."""


def small_files(listing: Listing) -> list[HubFile]:
    """Returns the files that describe a model beside its weights."""
    return [listing.files[name] for name in dict.fromkeys((*_SMALL, *tokenizer_files())) if name in listing.files]


def module_files(listing: Listing, modules: Sequence[SentenceModule]) -> list[HubFile]:
    """Returns the files of the modules of a sentence-transformers model that have a folder each.

    The Transformer's are those that describe a model beside its weights; the others' are all that are read.
    """
    wanted = [
        f"{module.path}/{name}"
        for place, module in enumerate(modules)
        if module.path
        for name in ((*_SMALL, *tokenizer_files()) if not place else (CONFIG_FILE, SINGLE_FILE))
    ]
    return [listing.files[name] for name in dict.fromkeys(wanted) if name in listing.files]


def adapter_files(listing: Listing) -> list[HubFile]:
    """Returns the files of an adapter.

    Raises:
        HubError: the repository holds none.
    """
    missing = [name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS) if name not in listing.files]
    if missing:
        raise HubError(
            f"{_place(listing)} has no {' and no '.join(missing)}, as adapters of PEFT have: {_shown(listing.files)}"
        )
    return [listing.files[ADAPTER_CONFIG], listing.files[ADAPTER_WEIGHTS]]


def safetensors_files(listing: Listing, shards_of: ReadShards, folder: str = "") -> list[HubFile]:
    """Returns the single file of a checkpoint, or its shards; nothing beside them that holds the same weights again.

    Args:
        listing: files of the repository.
        shards_of: fetches an index and returns the names of its shards.
        folder: folder of the checkpoint, with a slash; empty for the repository's root.

    Raises:
        HubError: the repository lacks the checkpoint, or its index names missing files.
    """
    files, single, index = listing.files, f"{folder}{SINGLE_FILE}", f"{folder}{INDEX_FILE}"
    if f"{folder}{CONFIG_FILE}" not in files or not {single, index} & files.keys():
        raise HubError(_no_safetensors(listing, folder))
    if single in files:
        return [files[single]]
    names = [f"{folder}{name}" for name in sorted(shards_of(files[index]))]
    missing = [name for name in names if name not in files]
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise HubError(
            f"{_place(listing)}: {index} names {missing[0]!r}{more}, not among the files there: {_unfinished(listing)}"
        )
    return [files[name] for name in names]


def only_gguf(listing: Listing) -> bool:
    """Returns whether the only model of a repository is a GGUF file, so its name may be left out."""
    has_safetensors = bool({SINGLE_FILE, INDEX_FILE} & listing.files.keys())
    return not has_safetensors and len(_gguf_models(listing)) == 1


def gguf_files(listing: Listing, wanted: str | None) -> list[HubFile]:
    """Returns the GGUF file that a name stands for, or its parts in order.

    Args:
        listing: files of the repository.
        wanted: file, or quantisation such as ``Q4_K_M``; None takes the only model.

    Raises:
        HubError: nothing is called so, several models are, or parts are missing.
    """
    models = _gguf_models(listing)
    if wanted is None:
        return _whole(listing, next(iter(models.values())))
    if wanted.lower().endswith(_GGUF):
        return _whole(listing, _named(listing, models, wanted))
    matches = [stem for stem in models if _has_quantisation(stem, wanted)]
    if len(matches) == 1:
        return _whole(listing, models[matches[0]])
    if matches:
        names = ", ".join(sorted(models[stem][0] for stem in matches)[:_SHOWN])
        raise HubError(f"{_place(listing)}: {wanted} could be {names}: name the file, as in org/name:FILE.gguf")
    raise HubError(f"{_place(listing)} has no GGUF file of {wanted!r:.80}: {_gguf_choices(listing, models)}")


def _named(listing: Listing, models: dict[str, list[str]], wanted: str) -> list[str]:
    """Returns the files of the model that a file belongs to."""
    if wanted in listing.files:
        return next((names for names in models.values() if wanted in names), [wanted])
    near = near_names(wanted, (name for names in models.values() for name in names))
    raise HubError(f"{_place(listing)} has no file {wanted!r:.120}{near or ':'} {_gguf_choices(listing, models)}")


def _gguf_models(listing: Listing) -> dict[str, list[str]]:
    """Returns the files of each model, by name without the number of the part."""
    models: dict[str, list[str]] = defaultdict(list)
    for name in sorted(listing.files):
        if name.lower().endswith(_GGUF) and not _BESIDE.search(name):
            match = _PART.fullmatch(name)
            models[name[: -len(_GGUF)] if match is None else match["stem"]].append(name)
    return dict(models)


def _whole(listing: Listing, names: Sequence[str]) -> list[HubFile]:
    """Returns all parts of a model."""
    match = _PART.fullmatch(names[0])
    if match is not None:
        count = int(match["count"])
        expected = [
            f"{match['stem']}-{number:05d}-of-{count:05d}{_GGUF}" for number in range(1, min(count, 10_000) + 1)
        ]
        missing = [name for name in expected if name not in listing.files]
        if missing:
            raise HubError(
                f"{_place(listing)}: {missing[0]!r} is missing, one of {count} parts of a model: {_unfinished(listing)}"
            )
        names = expected
    return [listing.files[name] for name in names]


def _has_quantisation(stem: str, wanted: str) -> bool:
    """Returns whether a file or its folder is named after a quantisation: ``Q4_K`` is not in ``x-Q4_K_M``."""
    return re.search(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9_])", stem, re.IGNORECASE) is not None


def _no_safetensors(listing: Listing, folder: str) -> str:
    inside = {name.removeprefix(folder): file for name, file in listing.files.items() if name.startswith(folder)}
    files, place = inside, f"{folder[:-1]} of {_place(listing)}" if folder else _place(listing)
    if ADAPTER_CONFIG in files and CONFIG_FILE not in files:
        return f"{place} is an adapter: give its base model as `model` and this name as `adapter`"
    if (models := _gguf_models(listing)) and not {SINGLE_FILE, INDEX_FILE} & files.keys():
        return f"{place} holds GGUF files: {_gguf_choices(listing, models)}"
    if CONFIG_FILE not in files:
        return f"{place} has no {CONFIG_FILE}, so no model that can be exported: {_shown(files)}"
    wanted = f"{place} has no {SINGLE_FILE} and no {INDEX_FILE}"
    if pickles := sorted(name for name in files if name.endswith(_PICKLES)):
        names = ", ".join(pickles[:4])
        return (
            f"{wanted}, only {names}: a pickle can run code and is never loaded: find a safetensors form of the model"
        )
    return f"{wanted}: {_shown(files)}"


def _gguf_choices(listing: Listing, models: dict[str, list[str]]) -> str:
    if not models:
        return _shown(listing.files)
    shown = [_choice(listing, stem, names) for stem, names in sorted(models.items())[:_SHOWN]]
    more = f" and {len(models) - len(shown)} more" if len(models) > len(shown) else ""
    return f"name one of its files or quantisations, as in {listing.repository}:Q4_K_M: {', '.join(shown)}{more}"


def _choice(listing: Listing, stem: str, names: list[str]) -> str:
    kinds = _QUANTISATION.findall(stem)
    kind = f"{kinds[-1]}, " if kinds else ""
    return f"{names[0]} ({kind}{size_text(sum(listing.files[name].size for name in names))})"


def _place(listing: Listing) -> str:
    named = listing.revision if listing.revision == listing.commit else f"{listing.revision} ({listing.commit[:12]})"
    kind = "the cache of the hub's " if listing.cached else ""
    return f"{kind}{listing.repository} at {named}"


def _unfinished(listing: Listing) -> str:
    return "go online to fetch the rest" if listing.cached else "ask its owner, or take another revision"


def _shown(names: Collection[str]) -> str:
    listed = sorted(names)[:_SHOWN]
    more = f" and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
    return f"it holds {', '.join(listed) or 'nothing'}{more}"
