"""tools:embed on a tiny model of sentence-transformers with a tokenizer of its own."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import EagerExecutionContext, InputError, MappingWeights
from tapeline.backends import ENGINES
from tests.goldens.cases import CASES
from tests.goldens.encoders.files import encoder_weights
from tests.product import _bundles
from tests.product._bundles import Finished, export_case, invoke
from tests.product._sentences import SENTENCE_CASE, export_sentences, write_sentence_tokenizer
from transformer_core.models import entry_points, load_model, weights_of

Embed = Callable[..., Finished]
compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")
_TEXTS = ("w5 w9 w66", "w9", "w3 w4 w5 w6 w7 w8")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that takes two sentences of eight tokens at a time."""
    folder = tmp_path_factory.mktemp("embed")
    return export_sentences(folder / "model", folder / "bundle")


@pytest.fixture
def embedding(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Embed:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return lambda bundle, *flags: invoke("embed", capsys, f"--bundle={bundle}", *flags)


def _expected(bundle: Path, text: str) -> np.ndarray:
    """Returns the embedding of one sentence alone, without padding, in the eager context."""
    model = load_model(bundle)
    ids = np.array([[1, *(int(word[1:]) for word in text.split()), 2]], np.int32)
    ctx = EagerExecutionContext(weights_of(model, MappingWeights(encoder_weights(SENTENCE_CASE))))
    (point,) = entry_points(model, sequence=ids.shape[1])
    arguments = (ids, np.ones_like(ids), np.zeros_like(ids))
    return point(ctx, *map(ctx.constant, arguments))["sentence_embedding"].numpy()[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_vectors_and_how_alike_they_are(engine: str, bundle: Path, embedding: Embed, tmp_path: Path) -> None:
    done = embedding(bundle, f"--backend={engine}", *(f"--text={text}" for text in _TEXTS), "--output=vectors.npy")
    assert done.code == 0, done.err
    vectors = np.load(tmp_path / "vectors.npy")
    expected = np.stack([_expected(bundle, text) for text in _TEXTS])
    np.testing.assert_allclose(vectors, expected, atol=2e-5)
    rows = [line.split(maxsplit=3) for line in done.out.splitlines()]
    assert [row[3] for row in rows] == list(_TEXTS)
    cosines = np.array([[float(cell) for cell in row[:3]] for row in rows])
    np.testing.assert_allclose(cosines, expected @ expected.T, atol=1e-4)


def test_vectors_as_json(bundle: Path, embedding: Embed, tmp_path: Path) -> None:
    done = embedding(bundle, *(f"--text={text}" for text in _TEXTS), "--output=vectors.npy", "--format=json")
    document = json.loads(done.out)
    assert document["inputs"] == list(_TEXTS)
    np.testing.assert_array_equal(np.float32(document["vectors"]), np.load(tmp_path / "vectors.npy"))
    np.testing.assert_allclose(np.diag(document["cosines"]), 1, atol=1e-5)


def test_bad_input(bundle: Path, embedding: Embed, tmp_path: Path) -> None:
    long = " ".join(["w7"] * 20)
    for flags, message in (
        ((), "give a sentence with --text, once for each"),
        (
            (f"--text={long}",),
            r"'w7 .*'\.\.\. has 22 tokens, the bundle takes 8: .* --sequence=19, the most that the",
        ),
    ):
        done = embedding(bundle, *flags)
        assert (done.code, done.out) == (2, "")
        assert re.search(message, done.err), done.err


def test_texts_are_a_list(bundle: Path) -> None:
    """A single text would be as many texts as it has letters."""
    with tapeline.load(bundle) as model:
        embed: Any = model.embed
        expected = embed(["w5 w9", "w3"])
        for texts in (("w5 w9", "w3"), np.array(["w5 w9", "w3"]), np.array(["w5 w9", "w3"], object)):
            np.testing.assert_array_equal(embed(texts), expected)
        for texts, got in (("w5", r"str \('w5'\): put a single"), (5, "int"), (b"a", "bytes"), ({"a": 1}, "dict")):
            with pytest.raises(InputError, match=f"`texts`: expected a list of texts; got {got}"):
                embed(texts)
        with pytest.raises(InputError, match=r"`texts`: expected texts; entry 1 is int \(5\)"):
            embed(["w5", 5])


def test_check_is_called_before_each_text_and_call(bundle: Path) -> None:
    calls: list[None] = []

    def check() -> None:
        calls.append(None)
        if len(calls) == 4:
            raise TimeoutError("late")

    with tapeline.load(bundle) as model:
        with pytest.raises(TimeoutError, match="late"):
            model.embed(["w5"] * 9, check=check)
        expected = model.embed(["w5", "w9", "w4"])
        np.testing.assert_array_equal(model.embed(["w5", "w9", "w4"], check=lambda: calls.append(None)), expected)
    assert len(calls) == 4 + 3 + 2  # three texts in two calls


def test_a_bundle_of_another_model(embedding: Embed, tmp_path: Path) -> None:
    # The options of compare_test, so that both share one compilation.
    decoder = export_case(CASES["llama_gqa"], tmp_path, num_layers=2, sequence=3, max_sequence=7)
    write_sentence_tokenizer(decoder)
    done = embedding(decoder, "--text=w3")
    assert done.code == 2
    assert re.search(r"embeds no sentences \(it gives none\): export a model that has modules\.json", done.err)
