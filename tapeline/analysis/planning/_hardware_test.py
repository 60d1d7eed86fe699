"""Figures of hardware: presets with sources, and what is refused."""

from pathlib import Path
from typing import Final

import pytest

from lang_core import InputError
from tapeline.analysis.planning import preset_names, read_hardware

_GOOD: Final = """
name = "Two boards"
devices = 2
memory_bytes = 1e9
memory_bandwidth = 1e11
link_bandwidth = 1e10

[flops]
f32 = 1e12
bf16 = 4e12
"""

_VENDORS: Final = {"NVIDIA": "nvidia.com", "AMD": "amd.com", "Google": "cloud.google.com"}


@pytest.mark.parametrize("name", preset_names())
def test_every_figure_of_a_preset_has_a_source(name: str) -> None:
    hardware = read_hardware(name)
    figures = {"devices", "memory_bytes", "memory_bandwidth", "flops"}
    figures |= {"link_bandwidth"} if hardware.link_bandwidth else set()
    figures |= {key for key in ("link_latency", "collective_latency") if getattr(hardware, key)}
    assert set(hardware.sources) == figures
    assert (hardware.link_bandwidth is None) == (hardware.devices == 1)
    assert all(
        "https://" in text or "same" in text or "given" in text or "Guide" in text for text in hardware.sources.values()
    )
    vendor = _VENDORS[hardware.name.split()[0]]
    assert any(f"{vendor}/" in text for text in hardware.sources.values()), "no page or data sheet of the vendor"
    # A device computes more than a number per byte that it reads, and holds what it reads within a minute.
    assert hardware.peak("bf16") > hardware.memory_bandwidth > hardware.memory_bytes / 60


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(_GOOD)
    hardware = read_hardware("own.toml", tmp_path)
    assert (hardware.name, hardware.devices, hardware.link_bandwidth, hardware.link_latency) == (
        "Two boards",
        2,
        1e10,
        0,
    )
    assert (hardware.peak("bf16"), hardware.peak("f16")) == (4e12, 1e12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("devices = 2", "devices = 2.5", "hardware=own.toml: devices = 2.5: expected a whole number above 0"),
        ("devices = 2", "devices = true", "devices = True: expected a whole number above 0"),
        ("devices = 2\n", "", "hardware=own.toml: 'devices' is missing: expected a whole number above 0"),
        ("1e9", "0", "memory_bytes = 0: expected a number above 0"),
        ("1e9", "inf", "memory_bytes = inf: expected a number above 0"),
        ("1e11", '"fast"', "memory_bandwidth = 'fast': expected a number above 0, in bytes per second"),
        ("1e10", "-1", "link_bandwidth = -1: expected a number above 0, in bytes per second and direction"),
        ("[flops]", "link_latency = -1\n[flops]", "link_latency = -1: expected a number of seconds, 0 or more"),
        ("memory_bandwidth", "memory_bandwith", "key 'memory_bandwith' not found; available: name, devices, memory_b"),
        ("f32 = 1e12", "float = 1e12", "flops.float: dtype not found; available: .*f32"),
        ("f32 = 1e12", 'f32 = "1e12"', "flops.f32 = '1e12': expected a number above 0"),
        ("[flops]\nf32 = 1e12\nbf16 = 4e12", "flops = 3", "flops = 3: expected a table with a number above 0"),
        ("[flops]\nf32 = 1e12\nbf16 = 4e12", "[flops]", "flops = {}: expected a table with a number above 0 per dtype"),
        ("[flops]", "sources = 1\n[flops]", "sources = 1: expected a table with a text per key"),
        ('"Two boards"', "3", "name = 3: expected a text"),
        ("devices = 2", "devices =", "hardware=own.toml: this is no TOML: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in _GOOD
    (tmp_path / "own.toml").write_text(_GOOD.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_hardware("own.toml", tmp_path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hardware=h100: not found; available: a100-80gb, .*did you mean 'h100-sxm'"):
        read_hardware("h100", tmp_path)
    (tmp_path / "own.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"hardware=own\.toml: cannot be read: "):
        read_hardware("own.toml", tmp_path)
