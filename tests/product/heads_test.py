"""Bundles that classify, tag, answer and fill, on a device: the goldens of transformers' pipelines, by every door."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import ConfigError, InputError
from run_iree import available, target_of_device
from tests.goldens.heads.cases import HEAD_CASES, QUESTIONS, TEXTS, read_goldens, write_files, write_weights
from tests.product._bundles import ON_FAST_DEVICES, export, invoke

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_TOLERANCE: Any = {"atol": 1e-4, "rtol": 1e-4}
_GOLDENS = read_goldens()["cases"]


def _exported(name: str, directory: Path, **options: Any) -> Path:
    """Returns a bundle of a case, of the lengths of the model unless there are others."""
    present, why = available(_DEVICE)
    if not present:
        pytest.skip(why)
    directory.mkdir()
    write_files(directory / "model", HEAD_CASES[name])
    write_weights(directory / "model", HEAD_CASES[name], _GOLDENS[name]["shapes"])
    return export(directory / "model", directory / "bundle", target=(target_of_device(_DEVICE),), **options)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _exported("classes", tmp_path_factory.mktemp("heads") / "classes")


@pytest.fixture(scope="module")
def entities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _exported("entities", tmp_path_factory.mktemp("heads") / "entities")


def test_classes_have_the_scores_of_the_pipeline_and_bits_of_texts_alone(classes: Path) -> None:
    expected = np.array(_GOLDENS["classes"]["results"]["texts"])
    texts = TEXTS[: len(expected)]
    with tapeline.load(classes, device=_DEVICE) as model:
        assert model.labels == ("negative", "neutral", "positive")
        assert any(point.name.startswith("packed") for point in model.bundle.config.entry_points)
        together = model.classify(texts)
        alone = np.concatenate([model.classify([text]) for text in texts])
        raw = np.asarray(model.classify(texts, raw=True))
        np.testing.assert_array_equal(np.asarray(together).view(np.int32), alone.view(np.int32))
        with pytest.raises(
            InputError, match=r"labels only \(negative, neutral, positive\).*which has a label that beg"
        ):
            model.classify(texts, labels=["a"])
        with pytest.raises(InputError, match=r"tags no tokens: export a model ForTokenClassification"):
            model.tag(texts)
        with pytest.raises(InputError, match=r"answers no questions \(it gives logits\)"):
            model.answer("a", "b")
        with pytest.raises(InputError, match=r"fills no masks, its logits are of classes"):
            model.fill(["[MASK]"])
        with pytest.raises(InputError, match=r"`pairs`: expected 2 texts, one for each of `texts`; got 1"):
            model.classify(["a", "b"], pairs=["c"])
        with pytest.raises(InputError, match=r"has 122 tokens, the model reads 32: shorten it"):
            model.classify(["berlin is big " * 40], truncate=False)
    np.testing.assert_allclose(together, expected, **_TOLERANCE)
    powers = np.exp(raw - raw.max(1, keepdims=True))
    np.testing.assert_allclose(powers / powers.sum(1, keepdims=True), together, atol=1e-6)


def test_labels_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = _exported("entailment", tmp_path / "entailment", sequence=38)
    texts = ["The cat is on the mat in Berlin", "a query"]
    with tapeline.load(bundle, device=_DEVICE) as model:
        scores = np.asarray(model.classify(texts, labels=["cat", "query"], hypothesis="It is a {}."))
        with pytest.raises(InputError, match=r"`hypothesis`: expected a text with {} in the place of a label; got 'a'"):
            model.classify(texts, labels=["cat"], hypothesis="a")
        with pytest.raises(InputError, match=r"has 94 tokens, the model reads 38 of it and another text: shorten it"):
            model.classify(texts, labels=["the cat" * 20])
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-6)
    flags = [f"--bundle={bundle}", "--label=cat", "--label=query", "--hypothesis=It is a {}.", f"--device={_DEVICE}"]
    done = invoke("classify", capsys, *flags, *(f"--text={text}" for text in texts), "--top_k=2")
    assert done.code == 0, done.err
    rows = [line.split(maxsplit=2) for line in done.out.splitlines()]
    best = np.sort(scores, 1)[:, ::-1]
    assert [float(row[0]) for row in rows] == pytest.approx(best.reshape(-1), abs=1e-4)
    assert [row[2] for row in rows] == [texts[0]] * 2 + [texts[1]] * 2


def test_classes_from_a_shell(classes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = np.array(_GOLDENS["classes"]["results"]["texts"])
    chosen = [index for index, text in enumerate(TEXTS[: len(expected)]) if text.strip() and "\n" not in text]
    long = "the cat on the mat " * 9
    (tmp_path / "lines").write_text("\n".join([*(TEXTS[index] for index in chosen), long]), encoding="utf-8")
    flags = [f"--bundle={classes}", f"--texts={tmp_path / 'lines'}", f"--output={tmp_path / 'scores.npy'}"]
    done = invoke("classify", capsys, *flags, f"--device={_DEVICE}", "--format=json")
    assert done.code == 0, done.err
    assert "were cut off" in done.err
    printed = json.loads(done.out)
    assert printed["labels"] == ["negative", "neutral", "positive"]
    rows = [list(row["scores"].values()) for row in printed["texts"]]
    np.testing.assert_allclose(rows[:-1], expected[chosen], **_TOLERANCE)
    assert printed["texts"][-1]["truncated"] == 15
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), rows)
    named = [row["label"] for row in printed["texts"]]
    assert named[:-1] == [printed["labels"][best] for best in expected[chosen].argmax(1)]


def test_names_of_another_number_of_classes_are_refused(classes: Path, tmp_path: Path) -> None:
    for file in classes.iterdir():
        (tmp_path / file.name).symlink_to(file)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps({**config, "id2label": {"0": "a", "2": "b"}}))
    with (
        tapeline.load(tmp_path, device=_DEVICE, verify="off") as model,
        pytest.raises(ConfigError, match=r"'id2label': expected names of 0 to 2; found those of 0, 2"),
    ):
        model.classify(["a"])


def test_tags_are_those_of_the_pipeline(entities: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = _GOLDENS["entities"]["results"]
    texts = TEXTS[: len(results["none"])]
    with tapeline.load(entities, device=_DEVICE) as model:
        assert model.labels == ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
        for aggregation in ("none", "max"):
            tagged = model.tag(texts, aggregation=aggregation)
            mine = [[(tag.label, tag.start, tag.end) for tag in one.tags] for one in tagged]
            assert mine == [[(tag[0], tag[3], tag[4]) for tag in tags] for tags in results[aggregation]]
        with pytest.raises(InputError, match=r"aggregation: expected one of none, simple, .*; found 'best'"):
            model.tag(texts, aggregation="best")  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputError, match="classifies no texts"):
            model.classify(texts)
    flags = [f"--bundle={entities}", f"--device={_DEVICE}", f"--text={texts[0]}", "--format=json"]
    done = invoke("tag", capsys, *flags)
    assert done.code == 0, done.err
    tags = json.loads(done.out)["texts"][0]["tags"]
    assert [[tag["label"], tag["word"]] for tag in tags] == [[tag[0], tag[2]] for tag in results["simple"][0]]
    plain = invoke("tag", capsys, *flags[:-1])
    assert [line.split()[2] for line in plain.out.splitlines()] == [tag[0] for tag in results["simple"][0]]


def test_answers_are_those_of_the_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle, expected = _exported("answers", tmp_path / "answers"), _GOLDENS["answers"]["results"]["best"]
    with tapeline.load(bundle, device=_DEVICE) as model:
        for (question, context), answers in zip(QUESTIONS, expected, strict=True):
            mine = model.answer(question, context, top_k=3)
            assert [[one.text, one.start, one.end] for one in mine] == [[one[0], *one[2:]] for one in answers]
            np.testing.assert_allclose([one.score for one in mine], [one[1] for one in answers], **_TOLERANCE)
        with pytest.raises(
            InputError, match=r"the question 'is is is .*' has \d+ tokens, the model reads 38 of a ques"
        ):
            model.answer("is " * 60, "berlin")
        with pytest.raises(InputError, match="`context`: expected a text that has the answer; got an empty one"):
            model.answer("is", " ")
    (tmp_path / "context").write_text(QUESTIONS[2][1], encoding="utf-8")
    flags = [f"--bundle={bundle}", f"--device={_DEVICE}", f"--question={QUESTIONS[2][0]}", "--top_k=3"]
    done = invoke("answer", capsys, *flags, f"--context_file={tmp_path / 'context'}", "--format=json")
    assert done.code == 0, done.err
    assert [one["answer"] for one in json.loads(done.out)["answers"]] == [one[0] for one in expected[2]]
    missing = invoke("answer", capsys, *flags)
    assert missing.code == 2
    assert "give the text that has the answer with --context, or a file of it with --context_file" in missing.err


def test_fillings_are_those_of_the_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle, case = _exported("masked", tmp_path / "masked"), HEAD_CASES["masked"]
    best = _GOLDENS["masked"]["results"]["best"]
    texts = [case.masked(text) for text in TEXTS[: len(best)]]
    with tapeline.load(bundle, device=_DEVICE) as model:
        filled = model.fill(texts, top_k=3)
        with pytest.raises(InputError, match=r"'berlin' has no mask: write \[MASK\] in it"):
            model.fill(["berlin"])
        with pytest.raises(InputError, match=r"`targets`: expected tokens of the vocabulary; 'nowhere' is none"):
            model.fill(["[MASK]"], targets=["nowhere"])
    mine = [[[(one.token, one.text) for one in mask] for mask in masks] for masks in filled]
    assert mine == [[[(one[0], one[3]) for one in mask] for mask in masks] for masks in best]
    weights = np.array(_GOLDENS["masked"]["results"]["sparse"][0], np.float32)
    flags = (f"--bundle={bundle}", f"--device={_DEVICE}", f"--text={TEXTS[0]}", "--sparse")
    sparse = invoke("embed", capsys, *flags)
    assert sparse.code == 0, sparse.err
    (best_id,) = re.findall(r"^ +\d\.\d{4} +(\d+)", sparse.out, re.M)[:1]
    assert int(best_id) == weights.argmax()
    (listed,) = json.loads(invoke("embed", capsys, *flags, "--format=json").out)["sparse"]
    assert listed["indices"] == np.flatnonzero(weights).tolist()
    np.testing.assert_allclose(listed["values"], weights[weights > 0], atol=1e-4)
    refused = invoke("embed", capsys, *flags, "--prompt_name=query")
    assert (refused.code, "--sparse goes with --text, without --prompt_name" in refused.err) == (2, True)
    done = invoke("fill", capsys, f"--bundle={bundle}", f"--device={_DEVICE}", f"--text={texts[0]}", "--top_k=2")
    assert done.code == 0, done.err
    assert re.findall(r"^(\d\.\d{4})", done.out, re.M) == [f"{one[2]:.4f}" for mask in best[0] for one in mask[:2]]
