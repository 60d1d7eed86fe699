"""Runs clients against ``tapeline serve`` with a tiny model: python -m tests.clients NAME..., or all."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.clients._environments import CLIENTS, Client, command_of, installed, results
from tests.clients._model import export_model
from tests.product._serving import ServerProcess, serving


def main() -> int:
    """Runs the clients that are named, and returns 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument(
        "names", nargs="+", choices=["all", *CLIENTS], metavar="NAME", help=f"all, {', '.join(CLIENTS)}"
    )
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "tapeline", "clients")
    parser.add_argument("--cache", type=Path, default=default, help="folder of environments")
    arguments = parser.parse_args()
    names = list(CLIENTS) if "all" in arguments.names else arguments.names
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bundle = export_model(folder)
        with serving(folder / "server", f"--bundle={bundle}") as server:
            failed = sum(_run(CLIENTS[name], server, bundle, arguments.cache) for name in names)
            server.end()
    return 1 if failed else 0


def _run(client: Client, server: ServerProcess, bundle: Path, cache: Path) -> int:
    """Runs one client, prints its results, and returns the number of checks that failed."""
    command = command_of(client, installed(client, cache))
    failed = 0
    for result in results(command, server.url.removesuffix("/v1"), bundle.name, bundle):
        failed += not result["ok"]
        state = "ok" if result["ok"] else "FAILED"
        print(f"{client.name} {client.version}: {result['check']} {state} ({result['seconds']} s)", flush=True)
        print(result["detail"], file=sys.stderr, end="")
    return failed


if __name__ == "__main__":
    sys.exit(main())
