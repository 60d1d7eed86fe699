"""Classes, tags, answers and fillings of tiny models against transformers' pipelines, in the eager context.

``TAPELINE_HEADS=DIR`` takes the results of ``make_head_goldens.py --output DIR``, of more texts.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from tapeline.exporting import open_source
from tapeline.running import Aggregation, MaskFiller, QuestionAnswerer, SparseEmbedder, TextClassifier, TokenTagger
from tapeline.text import Tokenizer
from tests.goldens.heads.cases import (
    DATA,
    HEAD_CASES,
    HYPOTHESIS,
    LABELS,
    QUESTIONS,
    TEXTS,
    HeadCase,
    read_goldens,
    write_files,
    write_weights,
)
from tests.goldens.sentences.eager_bundle import EagerBundle

_GOLDENS = read_goldens(Path(os.environ.get("TAPELINE_HEADS", DATA)))["cases"]
_TOLERANCE: Any = {"atol": 2e-5, "rtol": 2e-5}


def _cases(task: str) -> Any:
    return pytest.mark.parametrize(
        "case", [case for case in HEAD_CASES.values() if case.task == task], ids=lambda case: case.name
    )


@pytest.fixture
def bundle(case: HeadCase, tmp_path: Path) -> Iterator[Any]:
    """The case's model, in the lengths of an export, and rows that texts share."""
    write_files(tmp_path, case)
    write_weights(tmp_path, case, _GOLDENS[case.name]["shapes"])
    with open_source(str(tmp_path), tmp_path, True) as source:
        packed = (64, 128) if case.task in ("classify", "entail") else ()
        yield EagerBundle(source.directory, source.weights, packed=packed)


def _results(case: HeadCase) -> Any:
    return _GOLDENS[case.name]["results"]


def _opened(kind: Any, bundle: Any) -> Any:
    return kind(bundle, bundle, Tokenizer.load(bundle.path))


@_cases("classify")
def test_scores_are_those_of_the_pipeline(case: HeadCase, bundle: Any) -> None:
    expected, classifier = np.array(_results(case)["texts"]), _opened(TextClassifier, bundle)
    texts = TEXTS[: len(expected)]
    assert list(classifier.labels) == list(case.config["id2label"].values())
    alone = np.concatenate([classifier([text]) for text in texts])
    np.testing.assert_allclose(alone, expected, **_TOLERANCE)
    together = classifier(texts)
    np.testing.assert_allclose(together, expected, **_TOLERANCE)
    assert any(name.startswith("packed") for name in bundle.names)
    assert together.tokens.shape == (len(texts),)


@_cases("entail")
def test_pairs_and_labels_of_ones_own(case: HeadCase, bundle: Any) -> None:
    expected, classifier = _results(case), _opened(TextClassifier, bundle)
    texts = TEXTS[: len(expected["pairs"])]
    np.testing.assert_allclose(classifier(texts, [*texts[1:], texts[0]]), expected["pairs"], **_TOLERANCE)
    some = [text for text in texts if text]
    for name, several, labels in (("one", False, LABELS), ("several", True, LABELS), ("single", False, LABELS[:1])):
        scores = classifier.among(some, labels, hypothesis=HYPOTHESIS, several=several)
        np.testing.assert_allclose(scores, expected["labels"][name], **_TOLERANCE, err_msg=name)


@_cases("tag")
@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_tags_are_those_of_the_pipeline(case: HeadCase, aggregation: Aggregation, bundle: Any) -> None:
    expected, tagger = _results(case)[aggregation], _opened(TokenTagger, bundle)
    for text, tags, tagged in zip(TEXTS, expected, tagger(TEXTS[: len(expected)], aggregation), strict=False):
        mine = [[tag.label, tag.word, tag.start, tag.end, tag.index] for tag in tagged.tags]
        assert mine == [[label, word, start, end, index] for label, _, word, start, end, index in tags], text
        np.testing.assert_allclose([tag.score for tag in tagged.tags], [one[1] for one in tags], **_TOLERANCE)


@_cases("fill")
def test_fillings_are_those_of_the_pipeline(case: HeadCase, bundle: Any) -> None:
    expected, filler = _results(case), _opened(MaskFiller, bundle)
    assert filler.mask == case.mask
    texts = [case.masked(text) for text in TEXTS[: len(expected["best"])]]
    for name, options in (("best", {"top_k": 3}), ("targets", {"targets": expected["names"]})):
        for text, masks, fillings in zip(texts, expected[name], filler(texts, **options), strict=True):
            mine = [[(one.token, one.token_text, one.text) for one in mask] for mask in fillings]
            assert mine == [[(token, shown, whole) for token, shown, _, whole in mask] for mask in masks], text
            np.testing.assert_allclose(
                [[one.score for one in mask] for mask in fillings],
                [[one[2] for one in mask] for mask in masks],
                **_TOLERANCE,
            )


@_cases("fill")
def test_sparse_vectors_are_those_of_sentence_transformers(case: HeadCase, bundle: Any) -> None:
    expected = np.array(_results(case)["sparse"], np.float32)
    weights = _opened(SparseEmbedder, bundle)(TEXTS[: len(expected)])
    assert (expected == 0).any()
    assert (expected > 0).any()
    np.testing.assert_allclose(np.asarray(weights), expected, **_TOLERANCE)


@_cases("answer")
def test_answers_are_those_of_the_pipeline(case: HeadCase, bundle: Any) -> None:
    expected, answerer = _results(case), _opened(QuestionAnswerer, bundle)
    for name, options in (("best", {"top_k": 3}), ("short", {"top_k": 2, "most_tokens": 2, "may_have_none": True})):
        for (question, context), answers in zip(QUESTIONS, expected[name], strict=True):
            actual = answerer(question, context, **options)
            mine = [[one.text, one.start, one.end] for one in actual]
            assert mine == [[text, start, end] for text, _, start, end in answers], (name, question)
            np.testing.assert_allclose([one.score for one in actual], [one[1] for one in answers], **_TOLERANCE)


@pytest.mark.parametrize("case", HEAD_CASES.values(), ids=HEAD_CASES)
def test_goldens_were_made_from_these_cases(case: HeadCase) -> None:
    assert _GOLDENS[case.name]["case"] == case.digest()
    assert set(_GOLDENS) == set(HEAD_CASES)
