"""Ids, vectors and scores of tiny models against sentence-transformers, in every layout.

Each model goes the way of an export up to the compiler: its directory is arranged, the model runs eagerly at the
lengths of the entry points, and the embedder and ranker of a bundle call it.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, InputError
from tapeline.exporting import open_source, predict_export
from tapeline.running import SentenceEmbedder, TextRanker
from tapeline.text import Tokenizer
from tests.goldens.sentences.cases import (
    PAIRS,
    SENTENCE_CASES,
    TEXTS,
    SentenceCase,
    read_goldens,
    read_vectors,
    write_sentence_model,
)
from tests.goldens.sentences.eager_bundle import EagerBundle
from transformer_core import PACKED
from transformer_core.models import load_model

_EMBEDDERS = [case for case in SENTENCE_CASES.values() if not case.ranks]
_RANKERS = [case for case in SENTENCE_CASES.values() if case.ranks]
_PACKED = (64, 128)
_EXPORTED_LENGTHS = {
    "minilm": (16,),
    "old_layout": (18,),
    "roberta_positions": (38,),
    "qwen3": (32, 64),
    "left": (11,),
    "modernbert": (32, 64),
    "gtr": (28,),
}


@contextlib.contextmanager
def _opened(case: SentenceCase, directory: Path, **sizes: Any) -> Iterator[EagerBundle]:
    write_sentence_model(directory, case)
    with open_source(str(directory), directory, True) as source:
        yield EagerBundle(source.directory, source.weights, **sizes)


def _embedder(bundle: Any) -> SentenceEmbedder:
    return SentenceEmbedder(bundle, bundle, Tokenizer.load(bundle.path))


@pytest.mark.parametrize("case", _EMBEDDERS, ids=lambda case: case.name)
def test_ids_and_vectors_are_those_of_sentence_transformers(case: SentenceCase, tmp_path: Path) -> None:
    with _opened(case, tmp_path) as bundle:
        embedder = _embedder(bundle)
        for text, ids, vector in zip(
            TEXTS, read_goldens()["cases"][case.name]["ids"], read_vectors(case.name), strict=True
        ):
            result = embedder([text], case.prompt)
            assert bundle.calls[-1].tolist() == ids, text
            np.testing.assert_allclose(result[0], vector, atol=2e-5, rtol=2e-5, err_msg=repr(text))
            assert result.tokens.tolist() == [len(ids)]
        lengths = sorted(point.arguments[0].spec.shape[1] for point in bundle.points)
        assert tuple(lengths) == _EXPORTED_LENGTHS.get(case.name, tuple(lengths))


@pytest.mark.parametrize("case", _EMBEDDERS, ids=lambda case: case.name)
def test_texts_that_share_rows_have_the_vectors_of_sentence_transformers(case: SentenceCase, tmp_path: Path) -> None:
    with _opened(case, tmp_path, packed=_PACKED) as bundle:
        result = _embedder(bundle)(_many(TEXTS), case.prompt)
        assert any(name.startswith(PACKED) for name in bundle.names)
    np.testing.assert_allclose(result, _many(list(read_vectors(case.name))), atol=2e-5, rtol=2e-5)


def _many(rows: Sequence[Any]) -> list[Any]:
    """Returns rows several times, in more than one order."""
    return [*rows, *rows[::-1], *rows[::2], *rows[1::2]]


@pytest.mark.parametrize("case", _RANKERS, ids=lambda case: case.name)
def test_pairs_that_share_rows_have_the_scores_of_a_cross_encoder(case: SentenceCase, tmp_path: Path) -> None:
    with _opened(case, tmp_path, packed=_PACKED) as bundle:
        ranker = TextRanker(bundle, bundle, Tokenizer.load(bundle.path))  # pyright: ignore[reportArgumentType]
        for query in dict.fromkeys(query for query, _ in PAIRS):
            chosen = [number for number, pair in enumerate(PAIRS) if pair[0] == query]
            result = ranker(query, [PAIRS[number][1] for number in chosen] * 8)
            np.testing.assert_allclose(result, np.tile(read_vectors(case.name)[chosen], 8), atol=2e-5, rtol=2e-5)
        assert any(name.startswith(PACKED) for name in bundle.names)


@pytest.mark.parametrize("name", ["minilm", "bert_without_prompt", "qwen3"])
def test_texts_of_all_lengths_in_one_call_keep_their_order(name: str, tmp_path: Path) -> None:
    case = SENTENCE_CASES[name]
    with _opened(case, tmp_path, batch=3) as bundle:
        result = _embedder(bundle)(TEXTS, case.prompt)
    np.testing.assert_allclose(result, read_vectors(name), atol=2e-5, rtol=2e-5)
    whole = [len(ids) for ids in read_goldens()["cases"][name]["ids"]]
    assert result.tokens.tolist() == whole
    cut = {TEXTS[index] for index in np.flatnonzero(result.truncated)}
    assert cut >= {TEXTS[-2], TEXTS[-1]}
    assert not cut & {"", "a", "A"}


@pytest.mark.parametrize("case", _RANKERS, ids=lambda case: case.name)
def test_scores_are_those_of_a_cross_encoder(case: SentenceCase, tmp_path: Path) -> None:
    with _opened(case, tmp_path) as bundle:
        ranker = TextRanker(bundle, bundle, Tokenizer.load(bundle.path))  # pyright: ignore[reportArgumentType]
        goldens = zip(PAIRS, read_goldens()["cases"][case.name]["ids"], read_vectors(case.name), strict=True)
        for (query, document), ids, score in goldens:
            result = ranker(query, [document])
            assert bundle.calls[-1].tolist() == ids, (query, document)
            np.testing.assert_allclose(result, [score], atol=2e-5, rtol=2e-5)
            assert (result.truncated[0] > 0) == (len(query) + len(document) > 60)
        assert ranker("a", []).shape == (0,)


def test_a_long_text_is_refused_if_that_is_asked_for(tmp_path: Path) -> None:
    with _opened(SENTENCE_CASES["minilm"], tmp_path) as bundle:
        embedder = _embedder(bundle)
        with pytest.raises(InputError, match=r"'QQQ the mat .*'\.\.\. has \d+ tokens, the model reads 16: shorten it"):
            embedder([TEXTS[-1]], truncate=False)
        assert embedder(["berlin"], truncate=False).truncated.tolist() == [0]


def test_a_bundle_that_takes_less_than_the_model_reads_cuts_nothing_more(tmp_path: Path) -> None:
    """Refuses the text: if the bundle is the limit, and not the model, the vector is not the model's."""
    with _opened(SENTENCE_CASES["qwen3"], tmp_path, sequence=20) as bundle:
        embedder = _embedder(bundle)
        with pytest.raises(
            InputError, match=r"has \d+ tokens, the bundle takes 20: .* export with sequence=64, the most that"
        ):
            embedder(["berlin is big " * 40])


def test_an_export_of_forward_alone_has_the_lengths_of_the_model(tmp_path: Path) -> None:
    write_sentence_model(tmp_path / "model", SENTENCE_CASES["modernbert"])
    model, bundle = tmp_path / "model", tmp_path / "bundle"
    whole = predict_export(model, bundle, target=())
    for chosen in (["forward"], ("forward",)):
        alone = predict_export(model, bundle, target=(), entry_points=chosen)
        assert (alone["nodes"], alone["files"]) == (whole["nodes"], whole["files"])
    one = predict_export(model, bundle, target=(), sequence=64)
    assert one["nodes"]["emitted"] < whole["nodes"]["emitted"]


def test_no_texts(tmp_path: Path) -> None:
    with _opened(SENTENCE_CASES["minilm"], tmp_path) as bundle:
        assert _embedder(bundle)([]).shape == (0, 12)


@pytest.mark.parametrize("name", ["odd_paths", "all_modes"])
def test_a_module_without_its_files_is_named(name: str, tmp_path: Path) -> None:
    write_sentence_model(tmp_path, SENTENCE_CASES[name])
    folder = tmp_path / ("second" if name == "odd_paths" else "2_Dense")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with (
        pytest.raises(InputError, match=rf"{folder}: no model\.safetensors, but pytorch_model\.bin: a pickle can run"),
        open_source(str(tmp_path), tmp_path, True),
    ):
        pass
    with open_source(str(tmp_path), tmp_path, False) as source:  # no weights are read
        assert load_model(source.directory, weights=False).config.facts()["pooling"]
    (folder / "config.json").unlink()
    with (
        pytest.raises(InputError, match=rf"{folder}/config\.json: no such file: modules\.json names a module Dense"),
        open_source(str(tmp_path), tmp_path, False),
    ):
        pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_seq_length": 0}, "'max_seq_length': expected a whole number above 0; found 0"),
        ({"max_seq_length": "16"}, "'max_seq_length': expected a whole number"),
        ({"do_lower_case": 1}, "'do_lower_case': expected true or false; found 1"),
        ({"processing_kwargs": {"text": {"truncation": False}}}, "'truncation': expected true or longest_first"),
        ({"processing_kwargs": {"text": {"stride": 2}}}, "'stride': expected no such setting; found 2"),
        ({"processing_kwargs": {"common": {"x": 1}}}, "'common': expected no such settings"),
        (
            {"transformer_task": "fill-mask"},
            "'transformer_task': expected one of feature-extraction; found 'fill-mask'",
        ),
        ({"modality_config": {"message": {}}}, "'modality_config': expected no entry 'message': texts in a chat templ"),
        ({"config_kwargs": {"hidden_act": "relu"}}, "'config_kwargs': expected no setting but .*; found .*hidden_act"),
        ({"model_args": {"add_adapter": 3}}, "'model_args': expected no setting but .*; found .*add_adapter"),
    ],
)
def test_settings_that_are_not_supported_are_named(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    case = SENTENCE_CASES["minilm"]
    files = {**case.files, "sentence_bert_config.json": settings}
    with (
        pytest.raises(ConfigError, match=message),
        _opened(dataclasses.replace(case, files=files), tmp_path) as bundle,
    ):
        _embedder(bundle)


@pytest.mark.parametrize("case", SENTENCE_CASES.values(), ids=SENTENCE_CASES)
def test_goldens_were_made_from_these_cases(case: SentenceCase) -> None:
    goldens = read_goldens()
    assert case.digest() == goldens["cases"][case.name]["case"]
    assert set(goldens["cases"]) == set(SENTENCE_CASES)
