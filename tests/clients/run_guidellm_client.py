"""guidellm: benchmarks with synthetic prompts, on conversations, completions and responses."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _checks import arguments, equal, run

URL, MODEL = arguments()
BUNDLE = sys.argv[3]  # has the tokenizer
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}


def benchmark(
    route: str, profile: str = "kind=synchronous", model: str = MODEL, stream: str = "true"
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "report.json")
        flags = {
            "backend": f"kind=openai_http,target={URL},model={model},request_format={route},stream={stream}",
            "profile": profile,
            "constraint": "kind=max_requests,count=6",
            "data": "kind=synthetic_text,prompt_tokens=32,output_tokens=8",
            "tokenizer": f"kind=hf_auto,model={BUNDLE}",
            "output": f"kind=json,path={output}",
        }
        command = [str(Path(sys.executable).with_name("guidellm")), "run", "--disable-progress"]
        command += [part for name, value in flags.items() for part in (f"--{name}", value)]
        done = subprocess.run(command, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        (report,) = json.loads(output.read_text())["benchmarks"]
    return report["requests"]


def check(requests: dict[str, Any]) -> None:
    """Checks that every request had all of its tokens, as the server counts them."""
    equal((len(requests["successful"]), len(requests["errored"])), (6, 0))
    for one in requests["successful"]:
        equal(one["output_tokens"], 8)
        assert one["prompt_tokens"] >= 32, one["prompt_tokens"]


def chat() -> None:
    check(benchmark("/v1/chat/completions"))


def completions() -> None:
    check(benchmark("/v1/completions"))


def responses() -> None:
    check(benchmark("/v1/responses"))


def whole() -> None:
    check(benchmark("/v1/chat/completions", stream="false"))


def concurrent() -> None:
    check(benchmark("/v1/completions", "kind=concurrent,streams=3"))


def error() -> None:
    requests = benchmark("/v1/completions", model="absent")
    equal(len(requests["successful"]), 0)
    assert requests["errored"], requests


run(chat=chat, completions=completions, responses=responses, whole=whole, concurrent=concurrent, error=error)
