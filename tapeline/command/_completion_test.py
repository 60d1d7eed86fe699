import shutil
import subprocess
from pathlib import Path

import pytest

from tapeline.command import main


def _completed(script: Path, *words: str) -> list[str]:
    """Returns what bash offers for the last of the words."""
    program = f"source {script}; COMP_WORDS=(tapeline {' '.join(words)}); COMP_CWORD={len(words)}; " + (
        f'_shtab_tapeline tapeline "{words[-1]}" "{words[-2] if len(words) > 1 else "tapeline"}"; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], text=True, capture_output=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
def test_bash_completes_commands_flags_and_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "tapeline.bash"
    script.write_text(capsys.readouterr().out)
    assert _completed(script, "gen") == ["generate"]
    assert _completed(script, "chat", "--max_n") == ["--max_new_tokens"]
    assert _completed(script, "export", "--verify", "i") == ["interpreter", "iree"]
    assert _completed(script, "cache", "c") == ["clear"]


@pytest.mark.parametrize(("shell", "line"), [("zsh", "#compdef tapeline"), ("fish", "complete -c tapeline")])
def test_other_shells(shell: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert line in script
    assert "max_new_tokens" in script


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--shell=ksh"]) == 2
    assert "value should be one of <bash|zsh|fish>" in capsys.readouterr().err
