import os
from pathlib import Path

import pytest

from tools.docs import behaviours_doc
from tools.docs._behaviours import AREAS, BEHAVIOURS

PAGE = Path(__file__).parents[2] / "docs" / "behaviours.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == behaviours_doc.render(), "run: bazel run //tools/docs:behaviours_doc"


def test_every_behaviour_has_a_row_in_its_area() -> None:
    sections = behaviours_doc.render().split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == list(AREAS.values())
    for area, section in zip(AREAS, sections, strict=True):
        rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
        sentences = [behaviour.sentence for behaviour in BEHAVIOURS if behaviour.area == area]
        assert [row.split(" | ")[0] for row in rows] == [f"| {sentence}" for sentence in sentences]
    assert {behaviour.area for behaviour in BEHAVIOURS} == set(AREAS)


def test_sentences_are_told_apart_and_end_without_a_stop() -> None:
    sentences = [behaviour.sentence for behaviour in BEHAVIOURS]
    assert len(set(sentences)) == len(sentences)
    assert not [sentence for sentence in sentences if sentence.endswith(".") or "|" in sentence]


def test_main_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.setitem(os.environ, "BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    behaviours_doc.main()
    assert (tmp_path / "docs" / "behaviours.md").read_text(encoding="utf-8") == behaviours_doc.render()
