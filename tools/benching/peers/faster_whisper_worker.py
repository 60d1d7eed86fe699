"""Measured: faster-whisper, on CTranslate2. It stays, and answers as jobs/transcribe.py does.

Started as a file by the interpreter that has faster-whisper, so it imports nothing of ours. It is greedy, without
timestamps and without its detector of silence, as ours.
"""

import importlib
import json
import sys
import time
from typing import Any

_MISSING = 3  # the exit code where a package is missing


def main(arguments: dict[str, Any]) -> None:
    """Says what there is, where no ``model`` is named; else loads it and answers.

    Args:
        arguments: ``model``: a directory of CTranslate2; ``type`` of its computation: float32 or int8; ``threads``;
            ``language``.
    """
    try:
        package = importlib.import_module("faster_whisper")
        engine = importlib.import_module("ctranslate2")
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(_MISSING)
    if "model" not in arguments:
        print(json.dumps({one.__name__: one.__version__ for one in (package, engine)}))
        return
    began = time.perf_counter()
    model = package.WhisperModel(
        arguments["model"],
        device="cpu",
        compute_type=arguments["type"],
        cpu_threads=arguments["threads"],
        local_files_only=True,
    )
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        began, cpu_began = time.perf_counter(), time.process_time()
        segments, _ = model.transcribe(
            request["file"], beam_size=1, temperature=0.0, language=arguments["language"], without_timestamps=True
        )
        text = " ".join(segment.text.strip() for segment in segments)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "text": text}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
