"""Environments of clients: a virtual environment or a folder of Node.js, with pinned packages, kept for later runs."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
_DONE: Final = "installed"
_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Client:
    """Client of the server.

    Attributes:
        name: name of its files here.
        package: package that it is.
        node: True if it runs in Node.js.
    """

    name: str
    package: str
    node: bool = False

    @property
    def pins(self) -> Path:
        """File with the versions of its packages."""
        folder = HERE / "npm" / self.name.removesuffix("_npm")
        return folder / "package-lock.json" if self.node else HERE / "requirements" / f"{self.name}.txt"

    @property
    def script(self) -> Path:
        """Program with its checks."""
        return self.pins.with_name("run.mjs") if self.node else HERE / f"run_{self.name}_client.py"

    @property
    def version(self) -> str:
        """Version of its package."""
        text = self.pins.read_text(encoding="utf-8")
        if self.node:
            return json.loads(text)["packages"][f"node_modules/{self.package}"]["version"]
        (version,) = re.findall(rf"^{re.escape(self.package)}==(\S+)$", text, re.MULTILINE)
        return version


CLIENTS: Final = {
    client.name: client
    for client in (
        Client("openai", "openai"),
        Client("openai_npm", "openai", node=True),
        Client("anthropic", "anthropic"),
        Client("vercel_ai", "ai", node=True),
        Client("langchain", "langchain-openai"),
        Client("litellm", "litellm"),
        Client("instructor", "instructor"),
        Client("pydantic_ai", "pydantic-ai-slim"),
        Client("openai_agents", "openai-agents"),
        Client("llm", "llm"),
        Client("lm_eval", "lm_eval"),
        Client("guidellm", "guidellm"),
    )
}
"""Every client, by its name."""


def installed(client: Client, cache: Path) -> Path:
    """Returns the environment of a client, which is installed if the cache has none with these versions.

    Raises:
        subprocess.CalledProcessError: pip or npm failed.
    """
    pins = hashlib.sha256(client.pins.read_bytes()).hexdigest()[:16]
    folder = cache / f"{client.name}-{pins}"
    if (folder / _DONE).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if client.node:
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(client.pins.with_name(name), folder / name)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", client.pins], check=True)
    (folder / _DONE).touch()
    return folder


def command_of(client: Client, environment: Path) -> list[str]:
    """Returns the command of a client's checks in its environment, without the server."""
    if not client.node:
        return [str(environment / "bin" / "python"), str(client.script)]
    for path in (client.script, HERE / "npm" / "checks.mjs"):  # Node.js looks for packages beside a program
        shutil.copyfile(path, environment / path.name)
    return ["node", str(environment / client.script.name)]


def results(
    command: Sequence[str], url: str, model: str, bundle: Path, packages: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Runs the checks of a client, and yields the result of each: ``check``, ``ok``, ``detail`` and ``seconds``.

    Args:
        command: command of the checks.
        url: the server's URL, without a path.
        model: name of the model.
        bundle: directory with its tokenizer.
        packages: folders of packages for the program; without any it has those of its environment.

    Raises:
        RuntimeError: the program ended without a result.
    """
    arguments = [*command, url, model, str(bundle)]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONWARNINGS": "ignore"}
    for name in ("PYTHONPATH", "PYTHONSAFEPATH"):  # Bazel sets the second: a program's own folder is no package then
        environment.pop(name, None)
    if packages:
        environment["PYTHONPATH"] = os.pathsep.join(packages)
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=bundle.parent
    )
    count = 0
    for line in done.stdout.splitlines():
        if line.startswith('{"check"'):
            count += 1
            yield json.loads(line)
    if not count:
        raise RuntimeError(f"{command[-1]} ended with {done.returncode}: {done.stderr[-2000:]}")
