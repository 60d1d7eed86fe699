"""Runs llama.cpp on a GGUF file, for `export --verify=reference`.

`tapeline.reference` starts this file with an interpreter that has llama-cpp-python. Requests arrive on stdin, a line of
JSON each; answers go to `answer.json` and `answer.npz` in the folder that the request names. The network is not used.
"""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

MISSING: Any = None
try:
    import llama_cpp
    import numpy as np
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter
except ImportError as error:
    MISSING = error

_F32 = 0  # GGML_TYPE_F32
_POOLING_NONE = 0


class ReferenceError(Exception):
    """Refusal, with its kind: `missing` packages, or a model that does not `load`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def main() -> None:
    """Answers requests, a line of stdin each; a line of the former stdout tells that one is done."""
    done = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    for line in sys.stdin:
        _serve(json.loads(line))
        print("done", file=done, flush=True)


def _serve(request: dict[str, Any]) -> None:
    folder = Path(request["output"])
    try:
        if MISSING is not None:
            raise ReferenceError("missing", f"{MISSING}")
        answer, arrays = _answer(request)
        np.savez(folder / "answer.npz", **arrays)
    except ReferenceError as refused:
        answer = {"error": {"kind": refused.kind, "message": str(refused)}}
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _answer(request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    version = llama_cpp.__version__
    answer: dict[str, Any] = {"name": f"llama-cpp-python {version}", "versions": {"llama_cpp_python": version}}
    if request["adapters"]:
        raise ReferenceError("load", "adapters of PEFT are not in a form that llama.cpp reads")
    if request["texts"]:
        answer.update(_tokenized(_model(request, vocab_only=True), request))
    arrays: dict[str, Any] = {}
    if request["sequences"]:
        longest = max(len(sequence["ids"]) for sequence in request["sequences"])
        room = max(longest, request["capacity"])
        model = _model(request, n_ctx=room, n_batch=longest, n_ubatch=longest, logits_all=True)
        for place, sequence in enumerate(request["sequences"]):
            arrays[f"sequence.{place}"] = _logits(model, sequence)
    if request["inputs"]:
        with np.load(request["inputs"], allow_pickle=False) as file:
            arrays |= _states(request, {name: file[name] for name in file.files})
    return answer, arrays


def _model(request: dict[str, Any], **options: Any) -> Any:
    try:
        return llama_cpp.Llama(
            request["model"], n_gpu_layers=0, verbose=False, type_k=_F32, type_v=_F32, flash_attn=False, **options
        )
    except (OSError, ValueError, RuntimeError, AssertionError) as error:
        raise ReferenceError("load", f"{type(error).__name__}: {error}") from error


def _tokenized(model: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Returns the ids of texts, and text and ids of conversations; an error if a template refuses one."""
    conversations: list[Any] = []
    template = model.metadata.get("tokenizer.chat_template")
    for messages in request["conversations"]:
        if template is None:
            conversations.append({"error": "the file has no chat template"})
            continue
        names = [_piece(model, token) for token in (model.token_bos(), model.token_eos())]
        formatter = Jinja2ChatFormatter(template, bos_token=names[0], eos_token=names[1])
        try:
            text = formatter(messages=messages).prompt
        except Exception as error:  # noqa: BLE001 - templates raise what they like, and refusals are compared
            conversations.append({"error": f"{type(error).__name__}: {error}"})
        else:
            conversations.append({"text": text, "ids": _ids(model, text, False)})
    return {"texts": [{"ids": _ids(model, text, True)} for text in request["texts"]], "conversations": conversations}


def _piece(model: Any, token: int) -> str:
    return "" if token < 0 else model._model.token_get_text(token)


def _ids(model: Any, text: str, special_tokens: bool) -> list[int]:
    return model.tokenize(text.encode(), add_bos=special_tokens, special=True)


def _logits(model: Any, sequence: dict[str, Any]) -> Any:
    """Returns logits [R, V]: after each prefix of the prompt, which is run at once, and of steps with a cache."""
    ids, ends = sequence["ids"], sequence["ends"]
    model.reset()
    model._ctx.kv_cache_clear()
    model.eval(ids[: ends[-1]])
    rows = [model.scores[end - 1].copy() for end in ends]
    for place in range(ends[-1], ends[-1] + sequence["steps"]):
        model.eval([ids[place]])
        rows.append(model.scores[place].copy())
    return np.stack(rows).astype(np.float32)


def _states(request: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns the states [B, T, D] of an encoder; zeros where there is padding."""
    if "decoder_token_ids" in inputs or "token_ids" not in inputs:
        raise ReferenceError("load", "encoder-decoders and images are not run here")
    ids, mask = inputs["token_ids"], inputs["attention_mask"]
    longest = ids.shape[1]
    options = {"n_ctx": longest, "n_batch": longest, "n_ubatch": longest}
    model = _model(request, embedding=True, pooling_type=_POOLING_NONE, **options)
    width = model.n_embd()
    states = np.zeros((*ids.shape, width), np.float32)
    for row, count in enumerate(mask.sum(1).tolist()):
        tokens = (ctypes.c_int32 * count)(*ids[row, :count].tolist())  # the batch points to it
        batch = llama_cpp.llama_batch_get_one(tokens, count)
        model._ctx.kv_cache_clear()
        code = llama_cpp.llama_decode(model._ctx.ctx, batch)  # of encoders it encodes
        if code:
            raise ReferenceError("load", f"llama_decode gives {code}")
        for place in range(count):
            pointer = llama_cpp.llama_get_embeddings_ith(model._ctx.ctx, place)
            states[row, place] = np.ctypeslib.as_array(pointer, (width,))
    return {"result.last_hidden_state": states}


if __name__ == "__main__":
    main()
