"""Features with kinds of bundles: each cell of the table in docs/supported.md."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tapeline
from lang_core import InputError
from tapeline import Bundle
from tests.product._combinations import KINDS, NEW, SIZES, TABLE, TEXTS, run


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bundle]:
    """Returns the bundle of a kind; each is exported once."""
    exported: dict[str, Bundle] = {}

    def bundle(kind: str) -> Bundle:
        if kind not in exported:
            exported[kind] = tapeline.export("demo", tmp_path_factory.mktemp("b") / "b", **SIZES, **KINDS[kind])
        return exported[kind]

    return bundle


@pytest.fixture(scope="module")
def alone(bundles: Callable[[str], Bundle]) -> list[list[int]]:
    """Returns the answer to each prompt alone, of the bundle of one sequence."""
    with tapeline.load(bundles("one sequence")) as model:
        return [model.generate(text, **NEW).token_ids for text in TEXTS]


_MODELS_OF_THEIR_OWN = ("`--speculate=mtp`", "pictures", "`tapeline serve`")
_USED = [feature for feature in TABLE if feature not in _MODELS_OF_THEIR_OWN]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feature", _USED)
def test_each_cell_holds(
    feature: str, kind: str, bundles: Callable[[str], Bundle], alone: list[list[int]], tmp_path: Path
) -> None:
    said, bundle = TABLE[feature][kind], bundles(kind)
    draft = bundles("`--slots`" if "slots" in kind else "one sequence")
    if not said.startswith("no: "):
        assert run(feature, bundle, draft, tmp_path) == alone
    else:
        with pytest.raises(InputError, match=re.escape(said.removeprefix("no: "))):
            run(feature, bundle, draft, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_with_a_model_of_its_own_is_refused_first(kind: str, bundles: Callable[[str], Bundle]) -> None:
    said = TABLE["`--speculate=mtp`"][kind]
    reason = said.removeprefix("no: ") if said != "yes" else "and no draft of a multi-token prediction head"
    with pytest.raises(InputError, match=re.escape(reason)):
        tapeline.load(bundles(kind), speculate="mtp")
