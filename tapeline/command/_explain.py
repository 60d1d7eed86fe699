"""Explains a kind of error: its meaning, its usual causes, and how to fix them.

explain InputError      one kind
explain                 the names of all kinds
"""

from typing import Final

from absl import flags

from tapeline.cli import show, table
from tapeline.command._explanations import EXPLANATIONS
from tapeline.command._format_flags import FormatFlag, put_json

FLAGS: Final = flags.FlagValues()
POSITIONAL: Final = ("kind", tuple(EXPLANATIONS))

_KIND: Final = flags.DEFINE_enum(
    "kind",
    None,
    list(EXPLANATIONS),
    "Kind of error; it may also be the first argument, without --kind=.",
    case_sensitive=False,
    flag_values=FLAGS,
)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the explanation, or the kinds."""
    if _FORMAT.is_json:
        kinds = {_KIND.value: EXPLANATIONS[_KIND.value]} if _KIND.value else EXPLANATIONS
        put_json({name: explanation._asdict() for name, explanation in kinds.items()})
    elif _KIND.value:
        show(_text(_KIND.value))
    else:
        rows = [(name, explanation.meaning) for name, explanation in EXPLANATIONS.items()]
        show("\n".join(table(rows, indent="")) + "\n")


def _text(kind: str) -> str:
    meaning, causes, cures = EXPLANATIONS[kind]
    return f"{kind}: {meaning}\n\nUsual causes:\n{_lines(causes)}\nTo do:\n{_lines(cures)}"


def _lines(texts: tuple[str, ...]) -> str:
    return "".join(f"  - {text}\n" for text in texts)
