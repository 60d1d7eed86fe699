"""Measured: a model of pictures by transformers on PyTorch, or by ONNX Runtime. It answers as jobs/pictures.py does.

Started as a file by the interpreter that has these packages, so it imports nothing of ours.
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

_MISSING = 3  # the exit code where a package is missing
_PACKAGES = ("transformers", "torch", "onnx", "onnxruntime")


def main(arguments: dict[str, Any]) -> None:
    """Says what there is, where no ``model`` is named; else loads it and answers.

    Args:
        arguments: ``model``: a directory of transformers; ``system``: torch or onnxruntime; ``threads``.
    """
    try:
        transformers, torch, *others = map(importlib.import_module, _PACKAGES)
        numpy = importlib.import_module("numpy")
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(_MISSING)
    if "model" not in arguments:
        print(json.dumps({one.__name__: one.__version__ for one in (transformers, torch, *others)}))
        return
    began = time.perf_counter()
    torch.set_num_threads(arguments["threads"])
    torch.set_grad_enabled(False)
    with contextlib.redirect_stdout(sys.stderr):  # the exporter prints its steps
        model = transformers.AutoModel.from_pretrained(arguments["model"], dtype=torch.float32).eval()
        run = _in_torch(torch, model) if arguments["system"] == "torch" else _exported(torch, model, arguments)
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pictures = numpy.load(request["pictures"])
        began, cpu_began = time.perf_counter(), time.process_time()
        states = [run(picture) for picture in pictures]
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        numpy.save(request["file"], numpy.stack(states))
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds}), flush=True)


def _in_torch(torch: Any, model: Any) -> Callable[[Any], Any]:
    return lambda picture: model(torch.from_numpy(picture)).last_hidden_state.numpy()


def _exported(torch: Any, model: Any, arguments: dict[str, Any]) -> Callable[[Any], Any]:
    runtime = importlib.import_module("onnxruntime")

    class States(torch.nn.Module):
        def forward(self, pictures: Any) -> Any:
            return model(pictures).last_hidden_state

    config = model.config
    picture = torch.zeros(1, config.num_channels, config.image_size, config.image_size)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = arguments["threads"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(States().eval(), (picture,), path, input_names=["pictures"], dynamo=True)
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda picture: session.run(None, {"pictures": picture})[0]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
