"""Specifications of constraints, as a request names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lang_core import checked_choices

Schema = Any
"""A JSON schema, as JSON is read: an object, true or false."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Any JSON object (``response_format`` ``json_object``)."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    r"""JSON text of a value that a schema allows (``response_format`` ``json_schema``).

    Properties come in the order of the schema. Spaces before and after the value are not allowed, and inside it at most
    one space, or line breaks with an indentation, where JSON allows any. ``\uXXXX`` is never written: characters
    stand for themselves.

    Attributes:
        schema: JSON schema; keywords and drafts as in docs/grammars.md.
    """

    schema: Schema


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """Text that a regular expression matches as a whole.

    Attributes:
        pattern: expression in the syntax of Rust's `regex` crate, without look-around and back-references.
    """

    pattern: str


@checked_choices
@dataclass(frozen=True, slots=True)
class LarkGrammar:
    """Text that a context-free grammar derives from its rule ``start``.

    Attributes:
        text: grammar in llguidance's variant of Lark's syntax.
        schemas: JSON schemas that the grammar may name, as ``@name``.
        ends: True for a grammar that cannot force an endless text, such as those of tool calls: forced text then has
            the tokens of the tokenizer.
    """

    text: str
    schemas: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Choices:
    """One of several texts.

    Attributes:
        texts: at least one, each at least one character.
    """

    texts: Sequence[str]


GrammarSpec = JsonObject | JsonSchema | RegularExpression | LarkGrammar | Choices
"""Specification of a constraint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarLimits:
    """Bounds of a specification, of which a server takes any that comes.

    Attributes:
        characters: greatest length of a specification, in characters of its JSON or its own text.
        depth: greatest nesting of a schema.
        choices: greatest number of choices.
    """

    characters: int = 200_000
    depth: int = 64
    choices: int = 2_000
