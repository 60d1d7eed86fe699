import sys
from pathlib import Path

import pytest

from lang_core import InputError
from tools.benching.suites._peer import Peer, find_peer
from tools.benching.suites._run import BenchError
from tools.benching.suites._torch_peer import TorchPeer, find_torch_peer


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """An interpreter that has a package of the peer's name."""
    (tmp_path / "llama_cpp.py").write_text(text)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    return str(python)


def test_an_interpreter_without_it_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = package(tmp_path, monkeypatch, "raise ImportError('no shared library')")
    peer = find_peer(python)
    assert peer == Peer(python, None)
    assert peer.about() == "llama.cpp: not installed where `--peer_python` points: nothing of it was measured."


def test_one_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = package(tmp_path, monkeypatch, "llama_log_callback = lambda function: 1 / 0")
    with pytest.raises(BenchError, match=r"(?s)llama_cpp_worker\.py.*ended with code 1: .*ZeroDivisionError"):
        find_peer(python)


def test_what_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--peer_python=.*nothing: cannot be started \(No such file or directory\)"):
        find_peer(str(tmp_path / "nothing"))


def test_what_it_says_of_itself() -> None:
    settings = {
        "version": "1.2.3",
        "cache": "f16",
        "flash_attention": "auto",
        "batch": 512,
        "features": ["AVX2", "FMA"],
    }
    assert Peer("python", settings).about() == (
        "llama.cpp: llama-cpp-python 1.2.3, file mapped, cache f16, flash attention auto, prompts in pieces of 512, "
        "AVX2, FMA."
    )


def test_an_interpreter_without_transformers_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    python = package(tmp_path, monkeypatch, "")
    peer = find_torch_peer(python)
    assert peer == TorchPeer(python, None)
    assert peer.about() == "transformers: not installed where `--peer_python` points: nothing of it was measured."


def test_what_transformers_says_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("torch", "2.0"), ("transformers", "5.0")):
        (tmp_path / f"{name}.py").write_text(f"__version__ = {version!r}")
    peer = find_torch_peer(package(tmp_path, monkeypatch, ""))
    assert peer.about() == "transformers 5.0 on torch 2.0, a static cache; compiled: by `reduce-overhead`."
    with pytest.raises(InputError, match=r"nothing: cannot be started .*: name the Python interpreter .* transformers"):
        find_torch_peer(str(tmp_path / "nothing"))
