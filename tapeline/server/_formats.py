"""Formats that answers are held to: response_format and structured_outputs, as grammars."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lang_core import json_value
from tapeline.grammar import Choices, GrammarSpec, JsonObject, JsonSchema, LarkGrammar, RegularExpression
from tapeline.server._errors import RequestError
from tapeline.server._readers import Choice, Either, Flag, Items, Table, Text
from tapeline.server._records import Record, option, required
from tapeline.server._schemas import client_schema


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """Format that an answer is held to.

    Attributes:
        spec: its grammar.
        param: field of the request that has it.
        loosened: places of keywords of a schema that the answer need not satisfy.
    """

    spec: GrammarSpec
    param: str
    loosened: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedSchema:
    """JSON schema of an answer."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    name: str = option(Text(1), "Name of the schema; it is not shown to the model.", "answer")
    description: str | None = option(Text(), "Purpose of the format; it is not shown to the model.")
    schema: Any = required(Either((Table(), Flag())), "The JSON schema.")
    strict: bool = option(Flag(), "Answers always satisfy the schema, whatever this says.", True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFormat:
    """Format of an answer, as OpenAI's API has it."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    type: str = required(Choice(("text", "json_object", "json_schema")), "Kind of the format.")
    json_schema: NamedSchema | None = option(Record(NamedSchema), "With json_schema: the schema.")
    schema: Any = option(Either((Table(), Flag())), "With json_object: JSON schema, as llama-server has it.")

    def format(self) -> AnswerFormat | None:
        """Returns the format; None for any text.

        Raises:
            RequestError: type and schema contradict each other.
        """
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise RequestError(
                "response_format.json_schema: goes with the type json_schema, which needs it",
                param="response_format.json_schema",
            )
        if self.json_schema is not None:
            return schema_format(self.json_schema.schema, "response_format.json_schema.schema")
        if self.schema is not None and self.type != "json_object":
            raise RequestError("response_format.schema: goes with the type json_object", param="response_format.schema")
        if self.schema is not None:
            return schema_format(self.schema, "response_format.schema")
        return AnswerFormat(JsonObject(), "response_format") if self.type == "json_object" else None


@dataclass(frozen=True, kw_only=True, slots=True)
class StructuredOutputs:
    """Format of an answer, as vLLM's API has it: one of these."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    json: Any = option(Either((Table(), Flag(), Text(1))), "JSON schema, or its text.")
    json_object: bool = option(Flag(), "Any JSON object.", False)
    regex: str | None = option(Text(1), "Regular expression.")
    choice: tuple[str, ...] | None = option(Items(Text(1), 1), "One of these texts.")
    grammar: str | None = option(Text(1), "Grammar in llguidance's form of Lark.")

    def format(self) -> AnswerFormat:
        """Returns the format.

        Raises:
            RequestError: none is given, or several are.
        """
        texts: list[tuple[str, GrammarSpec]] = [("json_object", JsonObject())] if self.json_object else []
        texts += [] if self.regex is None else [("regex", RegularExpression(self.regex))]
        texts += [] if self.choice is None else [("choice", Choices(self.choice))]
        texts += [] if self.grammar is None else [("grammar", LarkGrammar(self.grammar))]
        formats = [AnswerFormat(spec, f"structured_outputs.{name}") for name, spec in texts]
        formats += [] if self.json is None else [schema_format(self.json, "structured_outputs.json")]
        if len(formats) != 1:
            raise RequestError(
                "structured_outputs: expected one of json, json_object, regex, choice and grammar; found "
                f"{len(formats)}",
                param="structured_outputs",
            )
        return formats[0]


def schema_format(given: Any, where: str) -> AnswerFormat:
    """Returns the format of a JSON schema, or of its text; ``where`` is the field that has it.

    Raises:
        RequestError: the text is not JSON.
    """
    translated = client_schema(_schema_of(given, where))
    return AnswerFormat(JsonSchema(translated.schema), where, translated.loosened)


def _schema_of(given: Any, where: str) -> Any:
    """Returns a JSON schema that a request has as such, or as text.

    Raises:
        RequestError: the text is not JSON.
    """
    if not isinstance(given, str):
        return given
    try:
        return json_value(given)
    except ValueError as error:
        raise RequestError(f"{where}: expected a JSON schema, or its text ({error})", param=where) from error
