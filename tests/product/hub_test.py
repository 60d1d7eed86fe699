"""Models by their name on the hub, from the command: what is downloaded, what the report says, exit codes."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tapeline.hub import _server_testing
from tapeline.hub._server_testing import HubServer
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint
from tests.product import _exports
from tests.product._bundles import invoke

exporting, hub = _exports.exporting, _server_testing.hub

_FLAGS = ("--sequence=4", "--max_sequence=8", "--num_layers=1", "--target=none", "--output=bundle")


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> dict[str, bytes]:
    """The files of a model in two shards."""
    (tmp_path / "model").mkdir()
    write_checkpoint(tmp_path / "model", CASES["llama_gqa"], shards=2)
    return {path.name: path.read_bytes() for path in sorted((tmp_path / "model").iterdir())}


@pytest.fixture(name="server")
def _server(hub: HubServer, files: dict[str, bytes]) -> HubServer:
    """A hub with the model as org/tiny."""
    hub.add("org/tiny", {**files, "pytorch_model.bin": b"pickle"})
    return hub


def test_an_export_by_name_is_that_of_the_files(
    server: HubServer, files: dict[str, bytes], exporting: _exports.Export, tmp_path: Path
) -> None:
    done = exporting("--model=org/tiny", *_FLAGS)
    assert done.code == 0, done.err
    assert "download org/tiny: " in done.err
    report = json.loads((tmp_path / "bundle" / "report.json").read_text())
    assert report["model"]["name"] == "org/tiny"
    assert report["model"]["source"]["hub"] == {
        "repository": "org/tiny",
        "revision": "main",
        "commit": server.repositories["org/tiny"].refs["main"],
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    again = exporting("--model=model", *_FLAGS[:-1], "--output=local")
    assert again.code == 0, again.err
    ours, theirs = ((tmp_path / name / "weights.irpa").read_bytes() for name in ("bundle", "local"))
    assert ours == theirs
    assert not [path for _, path, _ in server.requests if path.endswith(".bin")]


def test_a_dry_run_and_inspect_read_headers_only(
    server: HubServer, exporting: _exports.Export, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    done = exporting("--model=org/tiny", *_FLAGS, "--dry_run")
    assert done.code == 0, done.err
    assert "org/tiny: only headers are read; an export downloads " in done.err
    assert exporting("--model=model", *_FLAGS, "--dry_run").out.splitlines()[:2] == done.out.splitlines()[:2]
    inspected = invoke("inspect", capsys, "--model=org/tiny", "--parameters=*.embed_tokens.*")
    assert inspected.code == 0, inspected.err
    assert "model.embed_tokens.weight" in inspected.out
    asked = [given for _, path, given in server.requests if "/cdn/" in path and path.endswith(".safetensors")]
    assert asked
    assert all(asked)  # ranges
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("org/none", "error: --model=org/none: there is no directory or file "),
        ("org/tiny@v7", "and org/tiny has no revision 'v7': name a branch, a tag or a commit"),
        ("org/tiny:Q4_K_M", "has no GGUF file of 'Q4_K_M': it holds config.json, model-00001-of-00002.safetensors"),
        ("org/cut", "error: --model=org/cut: there is no directory or file "),
        ("x" * 300, "there is no directory or file "),
    ],
)
def test_what_the_hub_lacks_is_one_error(
    server: HubServer, exporting: _exports.Export, tmp_path: Path, model: str, message: str
) -> None:
    server.add("org/cut", {"config.json": b"{}", "README.md": b""})
    done = exporting(f"--model={model}", *_FLAGS)
    assert (done.code, done.err.count("error: ")) == (2, 1)
    assert message in done.err
    assert bool(server.requests) is ("/" in model)
    assert not (tmp_path / "bundle").exists()


def test_the_environment_names_the_hub_and_its_cache(server: HubServer, tmp_path: Path) -> None:
    variables = {"HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_secret"}
    code = "import sys; from tapeline.command import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "inspect", "--model=org/tiny"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment = {**own, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "LlamaForCausalLM" in done.stdout
    assert (tmp_path / "home/hub/models--org--tiny/refs/main").is_file()
    assert ("/api/models/org/tiny/revision/main", "Bearer hf_secret") in server.tokens
    offline = subprocess.run(
        command, env={**environment, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert offline.returncode == 2
    assert "go online to fetch the rest" in offline.stderr
    assert "hf_secret" not in done.stderr + done.stdout + offline.stderr
