"""The driver finds planted faults, keeps one input per kind, and shortens it."""

from pathlib import Path

import pytest

from tests.fuzz._driver import Report, run_target


def _run(folder: Path, data: bytes, runs: int = 50, **options: int) -> Report:
    (folder / "corpus").mkdir()
    (folder / "corpus/planted").write_bytes(data)
    return run_target("_planted", folder, runs=runs, **options)


@pytest.mark.parametrize(
    ("data", "name", "shortest"),
    [
        (b"some text that makes it raise an error", "ValueError-_planted-_run", b"raise"),
        (b"much memory", "MemoryError-_planted-_run", b"memory"),
        (b"a slow input", "SlowError-elsewhere", b"slow"),
    ],
)
def test_an_error_is_found_and_shortened(tmp_path: Path, data: bytes, name: str, shortest: bytes) -> None:
    report = _run(tmp_path, data)
    path = tmp_path / "findings" / name
    assert path in report.findings, report.log
    kept = path.read_bytes()
    assert shortest in kept
    if "Slow" not in name:  # time is not measured again
        assert kept == shortest


@pytest.mark.parametrize(
    ("data", "kind"), [(b"please abort now", "native-crash-"), (b"hang for ever", "native-timeout-")]
)
def test_an_input_that_ends_or_stops_the_process_is_kept(tmp_path: Path, data: bytes, kind: str) -> None:
    report = _run(tmp_path, data, timeout=2)
    (path,) = report.findings
    assert path.name.startswith(kind), report.log
    assert path.read_bytes() == data


def test_documented_errors_are_no_findings_and_are_not_accepted(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/refused").write_bytes(b"refuse")
    report = run_target("_planted", tmp_path, runs=3)
    # libFuzzer runs an empty input first, which is accepted as the seed is.
    assert (report.executions, report.accepted, report.findings) == (3, 2, ())
    assert report.edges > 0


def test_coverage_leads_to_an_input_that_chance_does_not_find(tmp_path: Path) -> None:
    """Four bytes of 256 values each: chance alone would need some 10^9 inputs."""
    report = run_target("_planted", tmp_path, runs=200_000)
    assert [path.name for path in report.findings] == ["KeyError-_planted-_run"]
    assert report.findings[0].read_bytes() == b"#!%&"
