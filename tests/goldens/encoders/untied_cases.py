"""Golden encoders whose files have values of their own for tensors that the models tie."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import safetensors.numpy

from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.goldens.golden_files import DATA
from tests.goldens.weights import unit_values

UNTIED: Final = DATA / "untied.npz"
"""First result for the golden inputs, by case: ``make_untied_goldens`` wrote them."""


class UntiedCase(NamedTuple):
    """Golden encoder whose files have values of their own for tensors that it ties.

    Attributes:
        model: name of the model in ``ENCODER_CASES``.
        tensors: key of a tensor of the same shape by each such key.
        removed: keys that the files do not have.
    """

    model: str
    tensors: Mapping[str, str]
    removed: tuple[str, ...] = ()


def write_untied(directory: Path, case: UntiedCase) -> None:
    """Writes the files of a case into an empty directory."""
    write_encoder_checkpoint(directory, ENCODER_CASES[case.model])
    weights = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(weights)
    for key, like in case.tensors.items():
        tensors[key] = unit_values(key, tensors[like].shape, 11)
    kept = {key: value for key, value in tensors.items() if key not in case.removed}
    safetensors.numpy.save_file(kept, weights, metadata={"format": "pt"})


_SHARED: Final = "shared.weight"
_OTHERS: Final = {
    "encoder": "encoder.embed_tokens.weight",
    "decoder": "decoder.embed_tokens.weight",
    "head": "lm_head.weight",
}
_HEADS: Final = {
    "bert_masked_lm": ("bert.embeddings.word_embeddings.weight", "cls.predictions."),
    "roberta_masked_lm": ("roberta.embeddings.word_embeddings.weight", "lm_head."),
    "mpnet_masked_lm": ("mpnet.embeddings.word_embeddings.weight", "lm_head."),
}

UNTIED_CASES: Final[dict[str, UntiedCase]] = {
    **{
        f"t5_{'_'.join(names)}{'_alone' * alone}": UntiedCase(
            "t5", {_OTHERS[name]: _SHARED for name in names}, (_SHARED,) if alone else ()
        )
        for count in (1, 2, 3)
        for names in itertools.combinations(_OTHERS, count)
        for alone in (False, True)
    },
    **{
        f"{model}_{kind}": UntiedCase(
            model, {f"{head}decoder.{kind}": embedding if kind == "weight" else f"{head}bias"}
        )
        for model, (embedding, head) in _HEADS.items()
        for kind in ("weight", "bias")
    },
    "modernbert_masked_lm": UntiedCase(
        "modernbert_masked_lm", {"decoder.weight": "model.embeddings.tok_embeddings.weight"}
    ),
    "whisper": UntiedCase("whisper", {"proj_out.weight": "model.decoder.embed_tokens.weight"}),
    "t5_sentence": UntiedCase("t5_sentence", {"encoder.embed_tokens.weight": _SHARED}),
}
