import hashlib
import struct
from pathlib import Path

import pytest

from tools.bootstrap import bazel_from_debian as installer


def test_a_key_store_holds_each_certificate() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n" * 2
    store = installer.java_key_store(pem)
    body, digest = store[:-20], store[-20:]
    assert struct.unpack(">III", body[:12]) == (0xFEEDFEED, 2, 2)
    assert body.count(b"\x00\x05X.509\x00\x00\x00\x03\x00\x01\x02") == 2
    assert digest == hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def test_a_path_that_the_rc_file_cannot_hold_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert installer.main(["--prefix", str(tmp_path / "my cache/bazel")]) == 1
    assert "has a space or another character that Bazel's rc file cannot hold" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_apt_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installer.main(["--prefix", str(tmp_path / "bazel")]) == 1
    assert "Bazel could not be installed from Debian" in capsys.readouterr().err
    assert not (tmp_path / "bazel").exists()
