"""Features that go with kinds of bundles, as the table in docs/supported.md has them, and how each is used."""

import json
import re
from pathlib import Path
from typing import Any

import tapeline
from tapeline import Bundle

_PAGE = Path(__file__).parents[2] / "docs" / "supported.md"
SIZES: dict[str, Any] = {"num_layers": 1, "sequence": 8, "max_sequence": 64, "verify": "none"}
KINDS: dict[str, dict[str, Any]] = {
    "one sequence": {"entry_points": ("prefill", "decode", "verify"), "verify_tokens": 4},
    "`--slots`": {"slots": 2, "verify_tokens": 4},
    "`--slots --pages`": {"slots": 2, "verify_tokens": 4, "page_tokens": 16, "pages": 9},
}
TEXTS = ["it was the age of wisdom, it was the age of", "the best of times", "it was the age of wisdom, it"]
NEW: dict[str, Any] = {"max_new_tokens": 7, "ignore_eos": True}


def _table() -> dict[str, dict[str, str]]:
    section = _PAGE.read_text(encoding="utf-8").split("## Features per kind of bundle", 1)[1]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    kinds = rows[0]
    assert kinds == list(KINDS)
    return {row[0]: dict(zip(kinds, row[1:], strict=True)) for row in rows[1:]}


TABLE = _table()


def _answers(bundle: Bundle, **options: Any) -> tuple[list[list[int]], int, int]:
    """Returns answers to all prompts, and how many tokens of a prompt were reused and of drafts were proposed."""
    with tapeline.load(bundle, **options) as model:
        stream = model.stream(TEXTS, **NEW)
        assert [*stream]
        again = model.stream(TEXTS[-1], **NEW)
        assert [*again]
        answers = [answer.token_ids for answer in stream.answers]
        assert again.answers[0].token_ids == answers[-1]
        return answers, again.reused, stream.drafted


def _check_constrained(bundle: Bundle, **place: Any) -> None:
    """Checks answers with a constraint, each alone and at once; the last one is cut off."""
    schema = {
        "type": "object",
        "properties": {"n": {"enum": [1, 20]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    with tapeline.load(bundle, **place) as model:
        for constraint, holds in (
            (tapeline.JsonSchema(schema), lambda text: json.loads(text)["n"] in (1, 20)),
            (tapeline.RegularExpression("[a-c]{3}-[0-9]{2}"), re.compile("[a-c]{3}-[0-9]{2}").fullmatch),
            (tapeline.Choices(["yes", "no"]), ("yes", "no").__contains__),
        ):
            options: dict[str, Any] = {"constraint": constraint, "max_new_tokens": 32, "temperature": 0.8, "seed": 3}
            answers = model.generate(TEXTS, **options)
            assert all(answer.ended == "eos" and holds(answer.text) for answer in answers), answers
            assert [model.generate(text, **options) for text in TEXTS] == answers
        cut = model.generate(TEXTS[0], constraint=tapeline.Choices(["a long answer"]), max_new_tokens=2)
        assert cut.ended == "length"
        assert "a long answer".startswith(cut.text)


def run(feature: str, bundle: Bundle, draft: Bundle, folder: Path, **place: Any) -> list[list[int]]:
    """Uses a feature with the prompts of ``TEXTS``, and returns their answers.

    Args:
        feature: first cell of a row of the table.
        bundle: bundle of the model.
        draft: bundle of a draft.
        folder: folder for a prompt cache.
        **place: where the bundle is opened, as for ``tapeline.load``.
    """
    if feature == "`--prompt_cache`":
        file = folder / "cache"
        _answers(bundle, prompt_cache=file, **place)
        assert file.stat().st_size > 0
        return _answers(bundle, prompt_cache=file, **place)[0]
    if feature == "`--draft`":
        return _answers(bundle, draft=draft.path, **place)[0]
    if feature.startswith("`--speculate="):
        answers, _, drafted = _answers(bundle, speculate=feature.strip("`").partition("=")[2], **place)
        assert drafted > 0
        return answers
    if feature == "`embed`":
        with tapeline.load(bundle, **place) as model:
            return [vector.tolist() for vector in model.embed(TEXTS)]
    answers, reused, _ = _answers(bundle, **place)
    if feature == "beginnings of earlier prompts reused":
        assert reused > 0
    if feature.startswith("`constraint` in Python"):
        _check_constrained(bundle, **place)
    if feature == "`score` in Python":
        with tapeline.load(bundle, **place) as model:
            assert len(model.score(TEXTS[0]).log_probabilities) == len(model.encode(TEXTS[0])) - 1
    return answers
