"""Features with kinds of bundles that are cut over two devices: the cells of the table in docs/supported.md."""

import os
import re
from pathlib import Path

import pytest

import tapeline
from lang_core import TapelineError
from tapeline import Bundle
from tests.product._combinations import KINDS, NEW, SIZES, TABLE, TEXTS, run

_LONG = bool(os.environ.get("TAPELINE_LONG"))
_OTHERS = ("`--speculate=mtp`", "pictures", "`tapeline serve`")  # they have models or programs of their own
_DRAFTS = ("`--speculate=prompt_lookup`", "`--draft`")
_BITS = "no: drafts: a token's bits depend on the call that computes it in this model"
_MESH = {"engine": "jax", "device": "cpu", "mesh": "tp=2"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Returns the answer to each prompt alone, on one device of IREE."""
    bundle = tapeline.export("demo", tmp_path_factory.mktemp("b") / "b", **SIZES, **KINDS["one sequence"])
    with tapeline.load(bundle) as model:
        return [model.generate(text, **NEW).token_ids for text in TEXTS]


@pytest.fixture(scope="module", params=KINDS if _LONG else ["`--slots --pages`"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def bundle(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return _cut(kind, tmp_path_factory.mktemp("b"))


def _cut(kind: str, folder: Path) -> Bundle:
    return tapeline.export("demo", folder / "b", mesh="tp=2", target=(), **SIZES, **KINDS[kind])


@pytest.mark.parametrize("feature", [feature for feature in TABLE if feature not in _OTHERS])
def test_each_cell_holds(feature: str, kind: str, bundle: Bundle, alone: list[list[int]], tmp_path: Path) -> None:
    said, draft = TABLE[feature][kind], bundle
    if feature in _DRAFTS and "slots" in kind:
        said = _BITS
        draft = _cut("`--slots`", tmp_path) if feature == "`--draft`" else bundle
    if not said.startswith("no: "):
        assert run(feature, bundle, draft, tmp_path, **_MESH) == alone
    else:
        with pytest.raises(TapelineError, match=re.escape(said.removeprefix("no: "))):
            run(feature, bundle, draft, tmp_path, **_MESH)
