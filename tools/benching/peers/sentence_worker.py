"""Measured: sentence-transformers on torch, or its model in ONNX Runtime. It stays, and answers as jobs/embed.py does.

Started as a file by the interpreter that has sentence-transformers, so it imports nothing of ours. In ONNX Runtime the
model is what ``torch.onnx.export`` makes of it, in f32 or with weights and activations of 8 bits
(``quantize_dynamic``); tokenizer and pooling are those of sentence-transformers. Both take batches of 32 texts in the
order of their lengths.
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from typing import Any

_MISSING = 3  # the exit code where a package is missing
_BATCH = 32
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class _Model:
    """A model of sentence-transformers; ``session`` runs its layers where there is one."""

    def __init__(self, torch: Any, package: Any, arguments: dict[str, Any]) -> None:
        self._torch = torch
        torch.set_num_threads(arguments["threads"])
        self._model = package.SentenceTransformer(arguments["model"], device="cpu").eval()
        kind = arguments["system"]
        self._session = None if kind == "torch" else self._exported(arguments["threads"], int8=kind.endswith("int8"))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Embeds texts, and writes their vectors to a file."""
        numpy = importlib.import_module("numpy")
        began, cpu_began = time.perf_counter(), time.process_time()
        with self._torch.inference_mode():
            vectors = self._embedded(request["texts"])
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        numpy.save(request["file"], vectors)
        return {"seconds": seconds, "cpu_seconds": cpu_seconds}

    def _embedded(self, texts: list[str]) -> Any:
        if self._session is None:
            return self._model.encode(texts, batch_size=_BATCH)
        order = sorted(range(len(texts)), key=lambda text: -len(texts[text]))  # as sentence-transformers does it
        vectors = self._torch.zeros(len(texts), self._model.get_embedding_dimension())
        for start in range(0, len(texts), _BATCH):
            chosen = order[start : start + _BATCH]
            batch = self._model.preprocess([texts[text] for text in chosen])
            given = {name: batch[name].numpy() for name in self._names if name in batch}
            (states,) = self._session.run(None, given)
            features = {**batch, "token_embeddings": self._torch.from_numpy(states)}
            for module in list(self._model)[1:]:
                features = module(features)
            vectors[chosen] = features["sentence_embedding"]
        return vectors.numpy()

    def _exported(self, threads: int, int8: bool) -> Any:
        runtime = importlib.import_module("onnxruntime")
        batch = self._model.preprocess(["two words", "a"])
        self._names = [name for name in _INPUTS if name in batch]
        model = self._model[0].auto_model
        names, torch = self._names, self._torch

        class States(torch.nn.Module):
            def forward(self, *tensors: Any) -> Any:
                return model(**dict(zip(names, tensors, strict=True))).last_hidden_state

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=512)}
            torch.onnx.export(
                States().eval(),
                tuple(batch[name] for name in names),
                path,
                input_names=names,
                output_names=["states"],
                dynamic_shapes=(tuple(sizes for _ in names),),
                dynamo=True,
            )
            if int8:
                quantization = importlib.import_module("onnxruntime.quantization")
                quantization.quantize_dynamic(path, path := os.path.join(folder, "int8.onnx"))
            options = runtime.SessionOptions()
            options.intra_op_num_threads = threads
            return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main(arguments: dict[str, Any]) -> None:
    """Says what there is, where no ``model`` is named; else loads it and answers.

    Args:
        arguments: ``model``: a directory of sentence-transformers; ``system``: torch, onnxruntime or onnxruntime-int8;
            ``threads``.
    """
    try:
        torch, package = importlib.import_module("torch"), importlib.import_module("sentence_transformers")
        others = [importlib.import_module(name) for name in arguments.get("needs", ())]
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(_MISSING)
    if "model" not in arguments:
        names = [package, torch, *others]
        print(json.dumps({one.__name__: one.__version__ for one in names}))
        return
    began = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # the exporter prints its steps
        model = _Model(torch, package, arguments)
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
    for line in sys.stdin:
        print(json.dumps(model.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
