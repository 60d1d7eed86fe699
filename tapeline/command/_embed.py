"""Embeds texts or images with a bundle, and prints their similarity.

embed --bundle DIR --text "One sentence." --text "Another one." [--output FILE.npy]
embed --bundle DIR --prompt_name query --text "A question?"
embed --bundle DIR --sparse --text "One sentence."     weights of tokens (SPLADE), with a masked language model
embed --bundle DIR --multi_vector --task query --text "A question?"     a vector for each token (ColBERT)
embed --bundle DIR --image one.jpg --image another.png [--output FILE.npy]
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from absl import flags

import tapeline
from lang_core import InputError
from tapeline.cli import output_file, table, user_path, whole_file
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._paths import check_readable
from tapeline.command._place_flags import define_place_flags
from tapeline.command._truncation import warn_of_truncation
from tapeline.running import similarities

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_TEXT: Final = flags.DEFINE_multi_string("text", [], "Text to embed.", flag_values=FLAGS)
_PROMPT_NAME: Final = flags.DEFINE_string(
    "prompt_name",
    None,
    "Prompt of config_sentence_transformers.json to put before each text. Default: the model's default prompt.",
    flag_values=FLAGS,
)
_TRUNCATE: Final = flags.DEFINE_bool(
    "truncate", True, "Truncate texts that exceed the model's length; false rejects them.", flag_values=FLAGS
)
_IMAGE: Final = flags.DEFINE_multi_string(
    "image", [], "Image file to embed, for bundles of vision models.", flag_values=FLAGS
)
_SPARSE: Final = flags.DEFINE_bool(
    "sparse",
    False,
    "Print the weights of tokens, with a bundle of a masked language model (SPLADE).",
    flag_values=FLAGS,
)
_MULTI_VECTOR: Final = flags.DEFINE_bool(
    "multi_vector",
    False,
    "Give a vector for each token, with a bundle of a ColBERT; texts are compared by late interaction.",
    flag_values=FLAGS,
)
_TASK: Final = flags.DEFINE_enum(
    "task", "document", ["query", "document"], "Use of the texts of --multi_vector.", flag_values=FLAGS
)
_OUTPUT: Final = flags.DEFINE_string(
    "output",
    None,
    "File (.npy) for the vectors, f32 [texts or images, D], or with --sparse [texts, V]; with --multi_vector a file "
    "(.npz) with f32 [tokens, D] of each text, by its number.",
    flag_values=FLAGS,
)
_SHOWN: Final = 20
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the similarity of each two texts or images: their cosine, or the measure that the model's files name."""
    output, titles = output_file("output", _OUTPUT.value), _TEXT.value or _IMAGE.value
    if bool(_TEXT.value) == bool(_IMAGE.value):
        raise InputError("give a sentence with `text`, once for each, or pictures with `image`")
    if _SPARSE.value and (_IMAGE.value or _PROMPT_NAME.value is not None):
        raise InputError("`sparse` goes with `text`, without `prompt_name`")
    if _MULTI_VECTOR.value and (_IMAGE.value or _SPARSE.value or _PROMPT_NAME.value is not None):
        raise InputError("`multi_vector` goes with `text`, without `sparse` and `prompt_name`: `task` names the prompt")
    if FLAGS["task"].present and not _MULTI_VECTOR.value:
        raise InputError("`task` goes with `multi_vector`")
    check_readable("image", _IMAGE.value)
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        if _SPARSE.value:
            _print_sparse(model, output)
            return
        if _MULTI_VECTOR.value:
            _print_token_vectors(model, output)
            return
        if _IMAGE.value:
            vectors, read, similarity = model.embed_images([*map(user_path, _IMAGE.value)]), {}, "cosine"
        else:
            embedded = model.embed(_TEXT.value, prompt_name=_PROMPT_NAME.value, truncate=_TRUNCATE.value)
            vectors, similarity = np.asarray(embedded), model.similarity
            read = {"tokens": embedded.tokens, "truncated": embedded.truncated}
            warn_of_truncation(_TEXT.value, embedded)
    if output:
        with whole_file(output) as file:
            np.save(file, vectors)
    alike = similarities(similarity, vectors)
    if _FORMAT.is_json:
        own = {} if similarity == "cosine" else {"similarity": similarity, "similarities": alike}
        put_json({"inputs": titles, "vectors": vectors, "cosines": similarities("cosine", vectors), **own, **read})
        return
    rows = [[*(f"{value:.4f}" for value in row), title] for row, title in zip(alike, titles, strict=True)]
    print("\n".join(table(rows, indent="")))


def _print_sparse(model: tapeline.LoadedModel, output: Path | None) -> None:
    """Prints the tokens of each text with their weights, the greatest first."""
    embedded = model.embed_sparse(_TEXT.value, truncate=_TRUNCATE.value)
    warn_of_truncation(_TEXT.value, embedded)
    vectors = np.asarray(embedded)
    if output:
        with whole_file(output) as file:
            np.save(file, vectors)
    sparse = [(ids := np.flatnonzero(row), row[ids]) for row in vectors]
    if _FORMAT.is_json:
        listed = [{"indices": ids, "values": values} for ids, values in sparse]
        counts = {"tokens": embedded.tokens, "truncated": embedded.truncated}
        put_json({"inputs": _TEXT.value, "sparse": listed, **counts})
        return
    for text, (ids, values) in zip(_TEXT.value, sparse, strict=True):
        print(text)
        best = np.argsort(-values, kind="stable")[:_SHOWN]
        rows = [[f"{values[place]:.4f}", str(ids[place]), model.token_text(int(ids[place]))] for place in best]
        print("\n".join(table(rows)))
        if len(ids) > len(best):
            print(f"  ({len(ids) - len(best)} more)")


def _print_token_vectors(model: tapeline.LoadedModel, output: Path | None) -> None:
    """Prints how well each text answers each other one, by late interaction, and the number of its vectors."""
    task: Any = _TASK.value
    embedded = model.embed_tokens(_TEXT.value, task=task, truncate=_TRUNCATE.value)
    vectors = [one.vectors for one in embedded]
    if output:
        with whole_file(output) as file:
            by_number: Any = {str(index): array for index, array in enumerate(vectors)}
            np.savez(file, **by_number)
    if _FORMAT.is_json:
        counts = {name: [getattr(one, name) for one in embedded] for name in ("tokens", "truncated")}
        put_json({"inputs": _TEXT.value, "vectors": vectors, **counts})
        return
    rows = [
        [*(f"{model.late_score(one, other):.4f}" for other in vectors), f"{len(one)} vectors", text]
        for one, text in zip(vectors, _TEXT.value, strict=True)
    ]
    print("\n".join(table(rows, indent="")))
