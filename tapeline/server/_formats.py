"""Formats that answers are held to: response_format and structured_outputs, as grammars."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lang_core import json_value
from tapeline.grammar import Choices, GrammarSpec, JsonObject, JsonSchema, LarkGrammar, RegularExpression
from tapeline.server._errors import RequestError
from tapeline.server._readers import Choice, Either, Flag, Items, Table, Text
from tapeline.server._records import Record, option, required


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedSchema:
    """JSON schema of an answer."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    name: str = option(Text(1), "Name of the schema; it is not shown to the model.", "answer")
    description: str | None = option(Text(), "What it is for; it is not shown to the model.")
    schema: Any = required(Either((Table(), Flag())), "The JSON schema.")
    strict: bool = option(Flag(), "Answers always satisfy the schema, whatever this says.", True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFormat:
    """Format of an answer, as OpenAI's API has it."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    type: str = required(Choice(("text", "json_object", "json_schema")), "Kind of the format.")
    json_schema: NamedSchema | None = option(Record(NamedSchema), "With json_schema: the schema.")
    schema: Any = option(Either((Table(), Flag())), "With json_object: JSON schema, as llama-server has it.")

    def spec(self) -> GrammarSpec | None:
        """Returns the grammar; None for any text.

        Raises:
            RequestError: type and schema contradict each other.
        """
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise RequestError(
                "response_format.json_schema: goes with the type json_schema, which needs it",
                param="response_format.json_schema",
            )
        if self.json_schema is not None:
            return JsonSchema(self.json_schema.schema)
        if self.schema is not None and self.type != "json_object":
            raise RequestError("response_format.schema: goes with the type json_object", param="response_format.schema")
        if self.schema is not None:
            return JsonSchema(self.schema)
        return JsonObject() if self.type == "json_object" else None


@dataclass(frozen=True, kw_only=True, slots=True)
class StructuredOutputs:
    """Format of an answer, as vLLM's API has it: one of these."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    json: Any = option(Either((Table(), Flag(), Text(1))), "JSON schema, or its text.")
    json_object: bool = option(Flag(), "Any JSON object.", False)
    regex: str | None = option(Text(1), "Regular expression.")
    choice: tuple[str, ...] | None = option(Items(Text(1), 1), "One of these texts.")
    grammar: str | None = option(Text(1), "Grammar in llguidance's form of Lark.")

    def spec(self) -> GrammarSpec:
        """Returns the grammar.

        Raises:
            RequestError: none is given, or several are.
        """
        specs: list[GrammarSpec] = [JsonObject()] if self.json_object else []
        specs += [] if self.json is None else [JsonSchema(schema_of(self.json, "structured_outputs.json"))]
        specs += [] if self.regex is None else [RegularExpression(self.regex)]
        specs += [] if self.choice is None else [Choices(self.choice)]
        specs += [] if self.grammar is None else [LarkGrammar(self.grammar)]
        if len(specs) != 1:
            raise RequestError(
                f"structured_outputs: expected one of json, json_object, regex, choice and grammar; found {len(specs)}",
                param="structured_outputs",
            )
        return specs[0]


def schema_of(given: Any, where: str) -> Any:
    """Returns a JSON schema that a request has as such, or as text.

    Raises:
        RequestError: the text is no JSON.
    """
    if not isinstance(given, str):
        return given
    try:
        return json_value(given)
    except ValueError as error:
        raise RequestError(f"{where}: expected a JSON schema, or its text ({error})", param=where) from error
