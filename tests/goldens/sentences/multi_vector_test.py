"""Vectors of tokens and scores of tiny ColBERTs against sentence-transformers, in the eager context."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, InputError
from tapeline.exporting import open_source
from tapeline.running import LateRanker, MultiVectorEmbedder, SentenceEmbedder
from tapeline.text import Tokenizer
from tests.goldens.sentences.eager_bundle import EagerBundle
from tests.goldens.sentences.multi_vector_cases import CASES, DATA, DOCUMENTS, QUERIES, MultiVectorCase, write_model
from transformer_core.family import read_pooling


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_vectors_and_scores_are_those_of_sentence_transformers(case: MultiVectorCase, tmp_path: Path) -> None:
    write_model(tmp_path, case)
    with open_source(str(tmp_path), tmp_path, True) as source, np.load(DATA) as golden:
        bundle: Any = EagerBundle(source.directory, source.weights)
        embedder = MultiVectorEmbedder(bundle, bundle, Tokenizer.load(bundle.path))
        tasks: Any = (("query", QUERIES), ("document", DOCUMENTS))
        for task, texts in tasks:
            for index, one in enumerate(embedder(texts, task)):
                np.testing.assert_allclose(one.vectors, golden[f"{case.name}.{task}.{index}"], atol=2e-5, rtol=2e-5)
        scores = np.array([LateRanker(embedder)(query, DOCUMENTS) for query in QUERIES])
        np.testing.assert_allclose(scores, golden[f"{case.name}.scores"], atol=5e-5, rtol=5e-5)
        with pytest.raises(InputError, match="embeds no sentences"):
            SentenceEmbedder(bundle, bundle, Tokenizer.load(bundle.path))


def test_other_masks_are_refused(tmp_path: Path) -> None:
    write_model(tmp_path, MultiVectorCase("kept", mask={"keep_only_token_ids": [4]}))
    with pytest.raises(ConfigError, match=r"keep_only_token_ids.*null"):
        read_pooling(tmp_path)
