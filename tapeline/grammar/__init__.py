"""Constraints on generated tokens: JSON, JSON schemas, regular expressions, grammars, choices.

``compile_constraint(spec, tokenizer, ends)`` gives a constraint for one answer: before each token ``mask(out)`` says
which ids may come next, after it ``accept(token_id)`` moves on. A specification that cannot be held to is refused
with an ``InputError`` when it is compiled; nothing of it is ignored.

    constraint = compile_constraint(JsonSchema({"type": "integer"}), tokenizer, ends)
    TokenRequest(..., constraint=constraint)
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.grammar._compile import compile_constraint, compile_constraints
    from tapeline.grammar._constraint import GrammarConstraint
    from tapeline.grammar._schema import FORMATS, check_schema
    from tapeline.grammar._specs import (
        Choices,
        GrammarLimits,
        GrammarSpec,
        JsonObject,
        JsonSchema,
        LarkGrammar,
        RegularExpression,
    )

export_lazily(__name__)
