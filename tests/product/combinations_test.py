"""Features with kinds of bundles: each cell of the table in docs/supported.md."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tapeline
from lang_core import InputError
from tapeline import Bundle

_PAGE = Path(__file__).parents[2] / "docs" / "supported.md"
_SIZES: dict[str, Any] = {"num_layers": 1, "sequence": 8, "max_sequence": 64, "verify": "none"}
_KINDS: dict[str, dict[str, Any]] = {
    "one sequence": {"entry_points": ("prefill", "decode", "score"), "score_tokens": 4},
    "`--slots`": {"slots": 2, "score_tokens": 4},
    "`--slots --pages`": {"slots": 2, "score_tokens": 4, "page_tokens": 16, "pages": 9},
}
_TEXTS = ["it was the age of wisdom, it was the age of", "the best of times", "it was the age of wisdom, it"]
_NEW: dict[str, Any] = {"max_new_tokens": 7, "ignore_eos": True}


def _table() -> dict[str, dict[str, str]]:
    section = _PAGE.read_text(encoding="utf-8").split("## What goes with which bundle", 1)[1]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    kinds = rows[0]
    assert kinds == list(_KINDS)
    return {row[0]: dict(zip(kinds, row[1:], strict=True)) for row in rows[1:]}


_TABLE = _table()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bundle]:
    """Returns the bundle of a kind; each is exported once."""
    exported: dict[str, Bundle] = {}

    def bundle(kind: str) -> Bundle:
        if kind not in exported:
            exported[kind] = tapeline.export("demo", tmp_path_factory.mktemp("b") / "b", **_SIZES, **_KINDS[kind])
        return exported[kind]

    return bundle


@pytest.fixture(scope="module")
def alone(bundles: Callable[[str], Bundle]) -> list[list[int]]:
    """Returns the answer to each prompt alone, of the bundle of one sequence."""
    with tapeline.load(bundles("one sequence")) as model:
        return [model.generate(text, **_NEW).token_ids for text in _TEXTS]


def _answers(bundle: Bundle, **options: Any) -> tuple[list[list[int]], int, int]:
    """Returns answers to all prompts, and how many tokens of a prompt were reused and of drafts were proposed."""
    with tapeline.load(bundle, **options) as model:
        stream = model.stream(_TEXTS, **_NEW)
        assert [*stream]
        again = model.stream(_TEXTS[-1], **_NEW)
        assert [*again]
        answers = [answer.token_ids for answer in stream.answers]
        assert again.answers[0].token_ids == answers[-1]
        return answers, again.reused, stream.drafted


def _check_constrained(bundle: Bundle) -> None:
    """Checks answers with a constraint, each alone and at once; the last one is cut off."""
    schema = {
        "type": "object",
        "properties": {"n": {"enum": [1, 20]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    with tapeline.load(bundle) as model:
        for constraint, holds in (
            (tapeline.JsonSchema(schema), lambda text: json.loads(text)["n"] in (1, 20)),
            (tapeline.RegularExpression("[a-c]{3}-[0-9]{2}"), re.compile("[a-c]{3}-[0-9]{2}").fullmatch),
            (tapeline.Choices(["yes", "no"]), ("yes", "no").__contains__),
        ):
            options: dict[str, Any] = {"constraint": constraint, "max_new_tokens": 32, "temperature": 0.8, "seed": 3}
            answers = model.generate(_TEXTS, **options)
            assert all(answer.ended == "eos" and holds(answer.text) for answer in answers), answers
            assert [model.generate(text, **options) for text in _TEXTS] == answers
        cut = model.generate(_TEXTS[0], constraint=tapeline.Choices(["a long answer"]), max_new_tokens=2)
        assert cut.ended == "length"
        assert "a long answer".startswith(cut.text)


def _run(feature: str, bundle: Bundle, draft: Bundle, tmp_path: Path) -> list[list[int]]:
    """Uses a feature, and returns the answers."""
    if feature == "`--prompt_cache`":
        file = tmp_path / "cache"
        _answers(bundle, prompt_cache=file)
        assert file.stat().st_size > 0
        return _answers(bundle, prompt_cache=file)[0]
    if feature == "`--draft`":
        return _answers(bundle, draft=draft.path)[0]
    if feature.startswith("`--speculate="):
        answers, _, drafted = _answers(bundle, speculate=feature.strip("`").partition("=")[2])
        assert drafted > 0
        return answers
    answers, reused, _ = _answers(bundle)
    if feature == "beginnings of earlier prompts reused":
        assert reused > 0
    if feature.startswith("`constraint` in Python"):
        _check_constrained(bundle)
    if feature == "`score` in Python":
        with tapeline.load(bundle) as model:
            assert len(model.score(_TEXTS[0]).log_probabilities) == len(model.encode(_TEXTS[0])) - 1
    return answers


_MODELS_OF_THEIR_OWN = ("`--speculate=mtp`", "pictures", "`tapeline serve`")
_USED = [feature for feature in _TABLE if feature not in _MODELS_OF_THEIR_OWN]


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("feature", _USED)
def test_each_cell_holds(
    feature: str, kind: str, bundles: Callable[[str], Bundle], alone: list[list[int]], tmp_path: Path
) -> None:
    said, bundle = _TABLE[feature][kind], bundles(kind)
    draft = bundles("`--slots`" if "slots" in kind else "one sequence")
    if not said.startswith("no: "):
        assert _run(feature, bundle, draft, tmp_path) == alone
    elif "reused" in feature:
        assert _answers(bundle)[:2] == (alone, 0)
    else:
        with pytest.raises(InputError, match=re.escape(said.removeprefix("no: "))):
            _run(feature, bundle, draft, tmp_path)


@pytest.mark.parametrize("kind", _KINDS)
def test_what_is_refused_with_a_model_of_its_own_is_refused_first(kind: str, bundles: Callable[[str], Bundle]) -> None:
    said = _TABLE["`--speculate=mtp`"][kind]
    reason = said.removeprefix("no: ") if said != "yes" else "and no draft of a multi-token prediction head"
    with pytest.raises(InputError, match=re.escape(reason)):
        tapeline.load(bundles(kind), speculate="mtp")
