import dataclasses
import json
from pathlib import Path

import pytest

from lang_core import InputError
from tools.benching.suites._figures import Case, Goal, Panel, SuiteResult, Table
from tools.benching.suites._machine import Machine
from tools.benching.suites._report import Run, as_markdown, as_text, with_section, write_docs, write_json
from tools.benching.suites._stats import Summary

MACHINE = Machine("Some CPU", 3, 5 * 2**30, "Linux 6.1", {"Python": "3.11"})
DOCS = "# Title\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nbetween\n<!-- other: begin -->\n<!-- other: end -->\n"


def example() -> Run:
    cases = [
        Case("ours", {"seconds": Summary.of([1.0, 2.0, 3.0]), "MiB": Summary.of([5.0])}),
        Case("theirs", {"seconds": Summary.of([7.0])}, peer=True),
    ]
    goals = [Goal("seconds", "<=", 1.5, Summary.of([2.0])), Goal("ops", ">=", 50_000, Summary.of([60_000.0]))]
    result = SuiteResult("speed", [Table("How fast", cases)], goals, {"texts are the same": True, "it is over": False})
    return Run(result, MACHINE, "2026-01-02", "bench --suite speed", 3, (0.5, 1.25))


def test_text() -> None:
    assert as_text(example()) == (
        "speed: Some CPU, 3 cores, 5 GiB, Linux 6.1; Python 3.11\n"
        "2026-01-02, 3 rounds, median [min-max]; load average 0.5 before, 1.2 after.\n"
        "\n"
        "How fast\n"
        "                        seconds   MiB\n"
        "ours           2.00 [1.00-3.00]  5.00\n"
        "theirs (peer)              7.00      \n"
        "\n"
        "figure      wanted   found        \n"
        "seconds     <= 1.5    2.00  MISSED\n"
        "ops      >= 50,000  60,000     met\n"
        "texts are the same: yes\n"
        "it is over: NO\n"
    )


def test_markdown() -> None:
    assert as_markdown(example()) == (
        "2026-01-02, 3 rounds, median [min-max]; load average 0.5 before, 1.2 after. "
        "Machine: Some CPU, 3 cores, 5 GiB, Linux 6.1; Python 3.11.\n"
        "\n"
        "`bench --suite speed`\n"
        "\n"
        "**How fast**\n"
        "\n"
        "|  | seconds | MiB |\n"
        "| --- | --: | --: |\n"
        "| ours | 2.00 [1.00-3.00] | 5.00 |\n"
        "| theirs (peer) | 7.00 |  |\n"
        "\n"
        "| figure | wanted | found |  |\n"
        "| --- | --: | --: | --- |\n"
        "| seconds | <= 1.5 | 2.00 | MISSED |\n"
        "| ops | >= 50,000 | 60,000 | met |\n"
        "\n"
        "- texts are the same: **yes**\n"
        "- it is over: **no**\n"
    )


def test_json_says_what_was_met(tmp_path: Path) -> None:
    write_json(tmp_path / "f.json", [example()])
    (run,) = json.loads((tmp_path / "f.json").read_text())
    assert [goal["met"] for goal in run["result"]["goals"]] == [False, True]
    assert run["result"]["tables"][0]["cases"][0]["values"]["seconds"]["maximum"] == 3.0
    assert run["load"] == [0.5, 1.25]


def test_only_the_section_of_the_suite_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "docs.md"
    path.write_text(DOCS)
    write_docs(path, [example()])
    once = path.read_text()
    assert once == DOCS.replace("old\n", as_markdown(example()))
    write_docs(path, [example()])
    assert path.read_text() == once


@pytest.mark.parametrize(
    "text",
    ["", "<!-- speed: begin -->\n", "<!-- speed: end -->\n<!-- speed: begin -->\n", DOCS + DOCS],
    ids=["none", "no end", "turned round", "twice"],
)
def test_markers_must_be_there_once(text: str) -> None:
    with pytest.raises(InputError, match=r"d\.md: expected <!-- speed: begin --> and then <!-- speed: end -->, each"):
        with_section(text, "speed", "new\n", "d.md")


def test_notes_and_panels(tmp_path: Path) -> None:
    run = example()
    run.result.notes.append("The peer slept.")
    run.result.panels.append(Panel("How fast", "seconds", run.result.tables[0].cases))
    (tmp_path / "docs.md").write_text(DOCS)
    write_docs(tmp_path / "docs.md", [run])
    assert "\n\nThe peer slept.\n\n![speed: the same as bars](images/speed.png)\n" in (tmp_path / "docs.md").read_text()
    assert (tmp_path / "images" / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert as_text(run).endswith("it is over: NO\nThe peer slept.\n")


def test_docs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.md: cannot be read \(No such file or directory\): name docs"):
        write_docs(tmp_path / "nothing.md", [example()])


def test_one_round_says_that_it_has_no_spread() -> None:
    assert "2026-01-02, one round only, so without a spread; load average" in as_text(
        dataclasses.replace(example(), rounds=1)
    )
