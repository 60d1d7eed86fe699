"""Checks that a checkpoint holds exactly the tensors that a model needs."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from lang_core import CheckpointError, DType, TensorSpec, WeightSource, checked_choices, near_names

IGNORABLE: Final = (
    "*rotary_emb.inv_freq",
    "*rotary_emb.cos_cached",
    "*rotary_emb.sin_cached",
    "mtp.*",
    "*.attn.bias",  # the causal masks of GPT-2 and GPT-NeoX
    "*.attn.masked_bias",
    "*.attention.bias",
    "*.attention.masked_bias",
)
"""Patterns of buffers that old checkpoints store although models compute them, and of multi-token prediction heads."""

_SHOWN: Final = 8


class Audit(NamedTuple):
    """Keys of the model and of the checkpoint, each in one list.

    Attributes:
        used: keys that are wanted and stored, in the model's order.
        tied: names of parameters that are read under another key, stored or not.
        ignored: stored keys that are known to be unused.
        missing: wanted keys that are not stored (empty if strict).
        unexpected: stored keys that are not wanted (empty if strict).
    """

    used: tuple[str, ...]
    tied: tuple[str, ...]
    ignored: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


@checked_choices
def audit(
    source: WeightSource,
    wanted: Mapping[str, TensorSpec],
    *,
    tied: Mapping[str, str] | None = None,
    ignorable: Sequence[str] = IGNORABLE,
    strict: bool = True,
) -> Audit:
    """Compares the tensors that a model needs with those of a checkpoint.

    Args:
        source: checkpoint.
        wanted: spec of each parameter by key. Shapes must be equal; a floating dtype may differ, since it is converted,
            any other must be equal.
        tied: wanted key by the name of a parameter that shares it, e.g.
            ``{"lm_head.weight": "model.embed_tokens.weight"}``. Such a name may be stored or not.
        ignorable: glob patterns of stored keys that may be left unused.
        strict: whether missing and unexpected keys are errors.

    Raises:
        CheckpointError: a tensor has another shape or dtype, or (if strict) a key is missing or unexpected; names keys,
            files, near names, expected and found shapes.
    """
    aliases = dict(tied or {})
    for alias, key in aliases.items():
        if key not in wanted:
            raise CheckpointError(
                f"{alias!r} is tied to {key!r}, which the model does not have{near_names(key, wanted)}"
            )
    stored = list(source.keys())
    known = set(stored)
    used = tuple(key for key in wanted if key in known)
    missing = tuple(key for key in wanted if key not in known)
    surplus = [key for key in stored if key not in wanted and key not in aliases]
    ignored = tuple(key for key in surplus if any(fnmatchcase(key, pattern) for pattern in ignorable))
    harmless = set(ignored)
    unexpected = tuple(key for key in surplus if key not in harmless)
    mismatches = [text for key in used if (text := _mismatch(source, key, wanted[key]))]
    problems = _listed(mismatches[:_SHOWN], len(mismatches))
    if strict:
        problems += _listed(
            [f"{key!r} is missing{near_names(key, unexpected)}" for key in missing[:_SHOWN]], len(missing)
        )
        surplus_texts = [
            f"{key!r} in {source.origin(key)} is not the model's{near_names(key, missing)}"
            for key in unexpected[:_SHOWN]
        ]
        problems += _listed(surplus_texts, len(unexpected))
    if problems:
        where = ", ".join(sorted({source.origin(key) for key in stored[:1000]})[:2]) or "the checkpoint"
        raise CheckpointError(
            f"the checkpoint does not fit the model ({where}): {'; '.join(problems)}. "
            "Check that config.json and the weights belong together."
        )
    return Audit(used, tuple(aliases), ignored, missing, unexpected)


def _mismatch(source: WeightSource, key: str, wanted: TensorSpec) -> str:
    spec = source.spec(key)
    if spec.shape != wanted.shape:
        return f"{key!r} in {source.origin(key)} has shape {list(spec.shape)}, the model needs {list(wanted.shape)}"
    if not _convertible(spec.dtype, wanted.dtype):
        return f"{key!r} in {source.origin(key)} is {spec.dtype.name}, the model needs {wanted.dtype.name}"
    return ""


def _convertible(stored: DType, wanted: DType) -> bool:
    return stored is wanted or (stored.is_floating and wanted.is_floating)


def _listed(shown: list[str], count: int) -> list[str]:
    return [*shown, f"and {count - len(shown)} more"] if count > len(shown) else shown
