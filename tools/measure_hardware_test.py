"""The measured file is one that a plan reads, with a source for each figure."""

import os
import sys
from pathlib import Path

import pytest

from tapeline.analysis.planning import read_hardware
from tools import measure_hardware


def test_what_is_measured_is_read(tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text(measure_hardware.measured("here", 64, 16, 2))
    hardware = read_hardware("here.toml", tmp_path)
    assert (hardware.name, hardware.devices, hardware.link_bandwidth) == ("here", 1, None)
    assert hardware.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert set(hardware.sources) == {"devices", "memory_bytes", "memory_bandwidth", "flops"}
    assert hardware.peak("f32") > 0 < hardware.memory_bandwidth


def test_the_program_writes_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["measure_hardware", "--output=here.toml"])
    monkeypatch.setattr(measure_hardware, "measured", lambda name, *_: f"# {name}\n")
    measure_hardware.main()
    assert capsys.readouterr().out == f"{tmp_path / 'here.toml'}\n"
    assert (tmp_path / "here.toml").read_text() == "# this machine\n"
