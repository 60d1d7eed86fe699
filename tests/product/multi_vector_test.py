"""A ColBERT as a bundle on a device: vectors of tokens and scores of sentence-transformers, by every door."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import tapeline
from lang_core import InputError
from run_iree import available, target_of_device
from tests.goldens.sentences.multi_vector_cases import CASES, DATA, DOCUMENTS, QUERIES, write_model
from tests.product._bundles import ON_FAST_DEVICES, export, invoke

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_CASE = next(case for case in CASES if case.name == "colbert")


def test_vectors_and_scores_by_every_door(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    present, why = available(_DEVICE)
    if not present:
        pytest.skip(why)
    (tmp_path / "model").mkdir()
    write_model(tmp_path / "model", _CASE)
    bundle = export(tmp_path / "model", tmp_path / "bundle", target=(target_of_device(_DEVICE),), sequence=40)
    with np.load(DATA) as golden:
        scores, query = golden["colbert.scores"], golden["colbert.query.0"]
        document = golden["colbert.document.0"]
    with tapeline.load(bundle, device=_DEVICE) as model:
        np.testing.assert_allclose(model.rerank(QUERIES[1], DOCUMENTS), scores[1], atol=1e-4)
        (one,) = model.embed_tokens([QUERIES[0]], task="query")
        np.testing.assert_allclose(one.vectors, query, atol=1e-4)
        assert model.pair_tokens(QUERIES[0], "") == 12 + len(model.embed_tokens([""])[0].vectors)
        assert model.late_score(query, document) == pytest.approx(scores[0, 0], abs=1e-4)
        with pytest.raises(InputError, match="embeds no sentences"):
            model.embed(["a"])
    flags = (f"--bundle={bundle}", f"--device={_DEVICE}", f"--text={DOCUMENTS[0]}", f"--text={DOCUMENTS[4]}")
    shown = invoke("embed", capsys, *flags, "--multi_vector", f"--output={tmp_path / 'vectors.npz'}")
    assert (shown.code, f"{len(document)} vectors" in shown.out) == (0, True), shown.err
    with np.load(tmp_path / "vectors.npz") as written:
        np.testing.assert_allclose(written["0"], document, atol=1e-4)
    listed = json.loads(invoke("embed", capsys, *flags, "--multi_vector", "--task=query", "--format=json").out)
    assert [len(one) for one in listed["vectors"]] == [12, 12]
    assert listed["tokens"] == [12, 12]
    refused = invoke("embed", capsys, *flags, "--task=query")
    assert (refused.code, "--task goes with --multi_vector" in refused.err) == (2, True), refused.err
    refused = invoke("embed", capsys, *flags, "--multi_vector", "--sparse")
    assert (refused.code, "--multi_vector goes with --text" in refused.err) == (2, True), refused.err
