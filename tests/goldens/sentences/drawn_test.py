"""Drawn models against sentence-transformers: TAPELINE_SENTENCES is a folder that draw_sentences.py wrote."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapeline.exporting import open_source
from tapeline.running import SentenceEmbedder, TextRanker
from tapeline.text import Tokenizer
from tests.goldens.sentences.cases import PAIRS, TEXTS, SentenceCase, write_files, write_weights
from tests.goldens.sentences.eager_bundle import EagerBundle

_FOLDER = os.environ.get("TAPELINE_SENTENCES", "")
_DRAWN = sorted(Path(_FOLDER).glob("*.json")) if _FOLDER else []


@pytest.mark.skipif(not _FOLDER, reason="TAPELINE_SENTENCES names no folder that draw_sentences.py wrote")
@pytest.mark.parametrize("path", _DRAWN, ids=lambda path: path.stem)
def test_a_drawn_model(path: Path, tmp_path: Path) -> None:
    facts = json.loads(path.read_text())
    case, expected = SentenceCase(**facts["case"]), np.load(path.with_suffix(".npy"))
    write_files(tmp_path, case)
    write_weights(tmp_path, case, facts["shapes"])
    with open_source(str(tmp_path), tmp_path, True) as source:
        bundle: Any = EagerBundle(source.directory, source.weights)
        tokenizer = Tokenizer.load(bundle.path)
        if case.ranks:
            ranker = TextRanker(bundle, bundle, tokenizer)
            results = [(ranker(query, [document]), bundle.calls[-1].tolist()) for query, document in PAIRS]
        else:
            embedder = SentenceEmbedder(bundle, bundle, tokenizer)
            results = [(embedder([text], case.prompt), bundle.calls[-1].tolist()) for text in TEXTS]
    for text, (result, read), ids, vector in zip(
        PAIRS if case.ranks else TEXTS, results, facts["ids"], expected, strict=True
    ):
        assert read == ids, text
        np.testing.assert_allclose(result[0], vector, atol=5e-5, rtol=5e-5, err_msg=repr(text))
