"""Answers a question with a span of a text, with a bundle of a model for extractive question answering.

answer --bundle DIR --question "Where does she live?" --context "Ada lives in London." [--top_k 3]
answer --bundle DIR --question "Where does she live?" --context_file FILE [--allow_none]
"""

from typing import Final

from absl import flags

import tapeline
from lang_core import InputError
from tapeline.cli import table, user_path
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._place_flags import define_place_flags
from tapeline.command._texts import whole_text

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_QUESTION: Final = flags.DEFINE_string("question", None, "Question.", required=True, flag_values=FLAGS)
_CONTEXT: Final = flags.DEFINE_string("context", None, "Text that contains the answer.", flag_values=FLAGS)
_CONTEXT_FILE: Final = flags.DEFINE_string("context_file", None, "File with that text.", flag_values=FLAGS)
_TOP_K: Final = flags.DEFINE_integer(
    "top_k", 1, "Number of answers to print, best first.", lower_bound=1, flag_values=FLAGS
)
_MAX_ANSWER_TOKENS: Final = flags.DEFINE_integer(
    "max_answer_tokens", 15, "Maximum number of tokens of an answer.", lower_bound=1, flag_values=FLAGS
)
_ALLOW_NONE: Final = flags.DEFINE_bool(
    "allow_none", False, "Allow the empty answer, for questions that the text does not answer.", flag_values=FLAGS
)
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the answers: score, characters, and the text."""
    file, context = _CONTEXT_FILE.value, _CONTEXT.value
    if (context is None) == (file is None):
        raise InputError("give the text that has the answer with `context`, or a file of it with `context_file`")
    text = whole_text("context_file", file) if context is None and file is not None else context or ""
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        answers = model.answer(
            _QUESTION.value,
            text,
            top_k=_TOP_K.value,
            max_answer_tokens=_MAX_ANSWER_TOKENS.value,
            allow_none=_ALLOW_NONE.value,
        )
    if _FORMAT.is_json:
        rows = [{"answer": one.text, "score": one.score, "start": one.start, "end": one.end} for one in answers]
        put_json({"question": _QUESTION.value, "answers": rows})
        return
    lines = [[f"{one.score:.4f}", f"{one.start}:{one.end}", one.text or "(none)"] for one in answers]
    print("\n".join(table(lines, indent="")))
