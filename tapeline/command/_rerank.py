"""Ranks documents by relevance to a query, with a bundle of a reranker.

rerank --bundle DIR --query "A question?" --document "One text." --document "Another one." [--output FILE.npy]
rerank --bundle DIR --query "A question?" --documents FILE [--output FILE.npy]
"""

from typing import Final

import numpy as np
from absl import flags

import tapeline
from tapeline.cli import output_file, table, user_path, whole_file
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._place_flags import define_place_flags
from tapeline.command._texts import texts_of
from tapeline.command._truncation import warn_of_truncation

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_QUERY: Final = flags.DEFINE_string("query", None, "Query text.", required=True, flag_values=FLAGS)
_DOCUMENT: Final = flags.DEFINE_multi_string("document", [], "Document text to rank.", flag_values=FLAGS)
_DOCUMENTS: Final = flags.DEFINE_string("documents", None, "File with one document per line.", flag_values=FLAGS)
_TRUNCATE: Final = flags.DEFINE_bool(
    "truncate",
    True,
    "Truncate pairs of query and document that exceed the model's length; false rejects them.",
    flag_values=FLAGS,
)
_OUTPUT: Final = flags.DEFINE_string(
    "output", None, "File (.npy) for the scores, f32 [documents], in the order of the documents.", flag_values=FLAGS
)
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the documents, the best first, each with its score and its number."""
    output = output_file("output", _OUTPUT.value)
    documents = texts_of("document", _DOCUMENT.value, _DOCUMENTS.value)
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        ranked_texts = model.rerank(_QUERY.value, documents, truncate=_TRUNCATE.value)
    warn_of_truncation(documents, ranked_texts)
    scores, truncated = np.asarray(ranked_texts), ranked_texts.truncated
    if output:
        with whole_file(output) as file:
            np.save(file, scores)
    order = np.argsort(-scores, kind="stable").tolist()
    if _FORMAT.is_json:
        ranked = [{"index": i, "score": scores[i], "truncated": truncated[i], "document": documents[i]} for i in order]
        put_json({"query": _QUERY.value, "documents": ranked})
        return
    print("\n".join(table([[f"{scores[i]:.4f}", str(i + 1), documents[i]] for i in order], indent="")))
