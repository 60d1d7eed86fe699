import importlib.util
import sys
from pathlib import Path

import pytest

from build_defs.compile_bytecode import main


def _loaded(source: Path, name: str) -> int:
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ANSWER


def _compiled(folder: Path, text: str) -> tuple[Path, Path]:
    source = folder / "some.py"
    source.write_text(text)
    bytecode = Path(importlib.util.cache_from_source(str(source)))
    bytecode.parent.mkdir()
    (folder / "names").write_text(f"{source}\n{bytecode}\n")
    main([f"@{folder / 'names'}"])
    return source, bytecode


def test_python_loads_the_bytecode(tmp_path: Path) -> None:
    source, bytecode = _compiled(tmp_path, "ANSWER = 42\n")
    assert bytecode.stat().st_size > 0
    source.write_text("ANSWER = 43\n")  # which nobody looks at
    assert _loaded(source, "some_compiled") == 42


def test_what_does_not_compile_fails_where_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source, bytecode = _compiled(tmp_path, "ANSWER = {{ number }}\nprint 'of Python 2'\n")
    assert bytecode.read_bytes() == b""
    with pytest.raises(SyntaxError):
        _loaded(source, "some_template")
