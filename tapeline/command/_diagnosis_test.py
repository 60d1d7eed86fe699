import json
import os
from pathlib import Path

import pytest

from lang_core import InputError
from run_iree.kernels import missing_features
from tapeline.command import main
from tapeline.command._cache_folders import CacheFolder, cache_folders, clear_caches
from tapeline.command._diagnosis import diagnose
from tapeline.command._diagnosis_text import diagnosis_text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder that holds this test's caches; the hub's client read its own when it was imported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TAPELINE_KERNEL_CACHE", raising=False)
    own = tmp_path / "tapeline"
    (own / "bundles" / "demo-1").mkdir(parents=True)
    (own / "bundles" / "demo-1" / "weights.irpa").write_bytes(b"x" * 1000)
    os.link(own / "bundles" / "demo-1" / "weights.irpa", own / "bundles" / "demo-1" / "again.irpa")
    (own / "modules").mkdir()
    (own / "modules" / "a.module").write_bytes(b"x" * 30)
    (own / "modules" / ".being-written").write_bytes(b"x" * 7)
    return own


def _named(folders: list[CacheFolder]) -> dict[str, CacheFolder]:
    return {folder.name: folder for folder in folders}


def test_folders_are_counted(home: Path) -> None:
    folders = _named(cache_folders())
    assert list(folders) == ["bundles", "modules", "kernels", "trusted", "hub"]
    assert (folders["bundles"].entries, folders["bundles"].nbytes) == (1, 1000)
    assert (folders["modules"].entries, folders["modules"].nbytes) == (1, 37)
    assert (folders["kernels"].entries, folders["kernels"].nbytes) == (0, 0)
    assert folders["bundles"].path == home / "bundles"


def test_one_folder_is_cleared_and_what_is_being_written_stays(home: Path) -> None:
    (cleared,) = clear_caches(["modules"])
    assert (cleared.name, cleared.nbytes) == ("modules", 37)
    assert not (home / "modules" / "a.module").exists()
    assert (home / "modules" / ".being-written").exists()
    assert (home / "bundles" / "demo-1").exists()


def test_all_of_our_own_are_cleared(home: Path) -> None:
    assert [folder.name for folder in clear_caches()] == ["bundles", "modules", "kernels"]
    assert not (home / "bundles" / "demo-1").exists()


def test_the_folder_of_the_hub_stays() -> None:
    with pytest.raises(InputError, match=r"cache 'hub': .* is shared with other programs: remove models from it with"):
        clear_caches(["hub"])


def test_an_unknown_folder_clears_nothing(home: Path) -> None:
    with pytest.raises(InputError, match="cache 'module' not found; available: bundles, modules, kernels, trusted"):
        clear_caches(["bundles", "module"])
    assert (home / "bundles" / "demo-1").exists()


def test_the_command_lists_and_clears(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list", "--format=json"]) == 0
    assert [folder["nbytes"] for folder in json.loads(capsys.readouterr().out)[:2]] == [1000, 37]
    assert main(["cache", "clear", "--name=modules"]) == 0
    streams = capsys.readouterr()
    assert f"modules: 30 bytes removed from {home / 'modules'}" in streams.err
    assert streams.out.splitlines()[1].split()[:3] == ["modules", "7", "bytes"]
    assert main(["cache", "--name=modules"]) == 2
    assert "--name selects caches for --action=clear" in capsys.readouterr().err


def test_a_diagnosis_has_what_an_issue_needs_and_no_secret(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    text = diagnosis_text(diagnose())
    for part in ("tapeline ", "iree-base-runtime", "local-task  yes", "cpu: 1 x cpu", "memory", "a token is there"):
        assert part in text
    assert "verysecret" not in text
    assert main(["doctor", "--format=json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["hub"]["logged_in"] is True
    assert {device["name"] for device in facts["devices"]} >= {"local-task", "vmvx", "vulkan", "cuda"}
    assert [engine["name"] for engine in facts["engines"]][:2] == ["iree", "jax"]
    present = {device["name"]: device["present"] for device in facts["devices"]}
    iree, jax = facts["engines"][:2]
    assert {*iree["devices"]} == {name for name, there in present.items() if there}
    assert {*facts["absent_devices"]["iree"]} == {name for name, there in present.items() if not there}
    assert "cpu" in jax["devices"]
    assert "tpu" in facts["absent_devices"]["jax"]
    assert facts["memory_bytes"] > facts["memory_available_bytes"] > 0
    assert facts["caches"][0]["nbytes"] == 1000


def test_a_cpu_that_lacks_a_feature_says_which() -> None:
    lacking = missing_features(["avx2", "fma", "f16c", "avx512f"])
    assert lacking["fma"] == ()
    assert lacking["vnni"] == ("avx512_vnni", "avx512bw", "avx512vl")
