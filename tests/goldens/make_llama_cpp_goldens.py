"""Runs llama.cpp on our GGUF files, for logits and the ids of texts: data/llama_cpp.json.

Run outside of Bazel, with xllamacpp (llama.cpp with a Python door), gguf, ml_dtypes, numpy and safetensors installed:

    PYTHONPATH=. python tests/goldens/make_llama_cpp_goldens.py [--only NAME ...]

With ``--only``, logits of these models and ids of these ``pre`` types are made, and all else stays as it is.
"""

import dataclasses
import importlib.metadata
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gguf import GGUFWriter

from tests.goldens._case_types import GoldenCase
from tests.goldens._shapes import sizes_of
from tests.goldens.cases import CASES
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden
from tests.goldens.encoders.gguf_encoders import GGUF_ENCODERS, GGUF_RERANKERS, OTHER_FILES, write_encoder_gguf
from tests.goldens.encoders.gguf_own_encoders import OWN, texts_of, write_own_gguf
from tests.goldens.encoders.gguf_t5 import ANSWERED, GGUF_T5S, write_t5_gguf
from tests.goldens.gguf_cases import GGUF_CASES, HYBRID_CASES, NOT_LLAMA_CPPS
from tests.goldens.gguf_files import write_gguf
from tests.goldens.gguf_further import OTHER_NAMES, other_name
from tests.goldens.gguf_own_decoders import OWN as OWN_DECODERS
from tests.goldens.gguf_own_decoders import prompt_of, write_own_decoder
from tests.goldens.llama_cpp_native import Llama, top_of

_DATA: Final = Path(__file__).parent / "data"
_STEPS: Final = 8
_TOP: Final = 4
_PRES: Final = (
    None,
    "default",
    "gpt-2",
    "llama-bpe",
    "dbrx",
    "qwen2",
    "tekken",
    "gpt-4o",
    "smollm",
    "refact",
    "stablelm2",
    "exaone4",
    "hunyuan-dense",
    "seed-coder",
    "glm4",
    "minimax-m2",
)


def _plain_tokens(count: int) -> Callable[[GGUFWriter], None]:
    """A vocabulary without meaning: prompts are ids."""

    def add(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([f"t{index}" for index in range(count)])
        writer.add_token_types([1] * count)
        writer.add_token_merges(["t 0"])
        writer.add_eos_token_id(count - 1)  # llama.cpp must have one, and never chooses it

    return add


def _tokenizer(model: str, pre: str | None, fields: dict[str, Any]) -> Callable[[GGUFWriter], None]:
    def add(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model(model)
        if pre is not None:
            writer.add_tokenizer_pre(pre)
        writer.add_token_list(fields["tokens"])
        writer.add_token_types(fields["types"])
        if "merges" in fields:
            writer.add_token_merges([" ".join(pair) for pair in fields["merges"]])
        else:
            writer.add_token_scores(fields["scores"])
        writer.add_add_bos_token(False)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(1)

    return add


def _asked(path: Path, request: dict[str, Any]) -> Any:
    """Asks llama.cpp in a process of its own, which it may take down."""
    done = subprocess.run(
        [sys.executable, __file__, str(path), json.dumps(request)],
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{path}: llama.cpp ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(Path(f"{path}.answer").read_text())


def _answer(path: str, request: dict[str, Any]) -> None:
    import xllamacpp  # noqa: PLC0415 (not in the process that writes files)

    if "start" in request or "count" in request:
        library = next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))
        Path(f"{path}.answer").write_text(json.dumps(_native(Llama(library, Path(path)), request)))
        return
    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.n_ctx = 256
    parameters.warmup = False
    parameters.cpuparams.n_threads = 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.embedding = "input" in request
    server = xllamacpp.Server(parameters)
    if "input" in request:
        answer: Any = server.handle_embeddings(request)
    elif "texts" in request:
        answer = [_tokenized(server.listening_address, text) for text in request["texts"]]
    else:
        answer = server.handle_completions(request)
    Path(f"{path}.answer").write_text(json.dumps(answer))


def _native(model: Llama, request: dict[str, Any]) -> Any:
    if "count" in request:
        return [[round(score, 6) for score in model.scores(ids, request["count"])] for ids in request["rows"]]
    return [
        [top_of(logits, _TOP) for logits in model.answered(ids, request["start"], request["vocabulary"], _STEPS)]
        for ids in request["rows"]
    ]


def _rows(name: str) -> list[list[int]]:
    """Returns the real tokens of an encoder's case."""
    inputs = read_encoder_golden(name).inputs
    pairs = zip(inputs["token_ids"], inputs["attention_mask"], strict=True)
    return [ids[mask.astype(bool)].tolist() for ids, mask in pairs]


def _ranks(directory: Path, name: str) -> list[list[float]]:
    """Returns the scores of the texts of a reranker's case."""
    case, path = ENCODER_CASES[name], directory / f"{name}.gguf"
    write_encoder_gguf(path, case, tokenizer=_plain_tokens(case.config["vocab_size"]))
    count = len(case.score) or len(case.config["id2label"])
    return _asked(path, {"rows": _rows(name), "count": count})


def _answers(directory: Path, name: str) -> Any:
    """Returns the likeliest tokens of each step of a T5's answers."""
    case, path = GGUF_T5S[name], directory / f"{name}.gguf"
    write_t5_gguf(path, case, tokenizer=_plain_tokens(case.config["vocab_size"]))
    sizes = {"start": case.config["decoder_start_token_id"], "vocabulary": case.config["vocab_size"]}
    return _asked(path, {"rows": _rows(name), **sizes})


def _tokenized(address: str, text: str) -> list[int]:
    body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
    asked = urllib.request.Request(f"{address}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        return json.loads(answer.read())["tokens"]


def _steps(directory: Path, name: str, case: GoldenCase) -> list[dict[str, Any]]:
    path, tokenizer = directory / f"{name}.gguf", _plain_tokens(sizes_of(case.config)[3])
    if name in OTHER_NAMES:
        case, weights = other_name(name, case)
        write_gguf(path, case, tokenizer=tokenizer, weights=weights, architecture=name)
    else:
        write_gguf(path, case, tokenizer=tokenizer)
    return _asked_steps(path, list(case.prompt[0]))


def _own_steps(directory: Path, name: str) -> list[dict[str, Any]]:
    """Returns the steps of a decoder that llama.cpp has, and transformers has not."""
    path, model = directory / f"{name}.gguf", OWN_DECODERS[name]
    write_own_decoder(path, model, tokenizer=_plain_tokens(model.vocabulary))
    return _asked_steps(path, prompt_of(model))


def _asked_steps(path: Path, prompt: list[int]) -> list[dict[str, Any]]:
    request = {"prompt": prompt, "n_predict": _STEPS, "top_k": 1, "n_probs": _TOP, "ignore_eos": True}
    content = _asked(path, request)["choices"][0]["logprobs"]["content"]
    return [{"token": entry["id"], "top": [[top["id"], round(top["logprob"], 5)] for top in entry["top_logprobs"]]}
            for entry in content]  # fmt: skip


def _embeddings(directory: Path, file: str) -> list[list[float]]:
    """Returns the embeddings of the real tokens of a case's inputs, or of the case whose model another file has."""
    architecture, name = OTHER_FILES.get(file, ("", file))
    case, path = ENCODER_CASES[name], directory / f"{file}.gguf"
    write_encoder_gguf(path, case, name=architecture, tokenizer=_plain_tokens(case.config["vocab_size"]))
    answer = _asked(path, {"input": _rows(name)})
    return [[round(number, 6) for number in entry["embedding"]] for entry in answer["data"]]


def _own_embeddings(directory: Path, name: str) -> list[list[float]]:
    """Returns the embeddings of texts by an encoder that llama.cpp has, and transformers has not."""
    path, model = directory / f"{name}.gguf", OWN[name]
    write_own_gguf(path, model, tokenizer=_plain_tokens(model.vocabulary))
    answer = _asked(path, {"input": texts_of(model)})
    return [[round(number, 6) for number in entry["embedding"]] for entry in answer["data"]]


def _ids(directory: Path, model: str, pre: str | None, fields: dict[str, Any], texts: list[str]) -> list[list[int]]:
    llama = CASES["llama_gqa"]
    case = dataclasses.replace(llama, config={**llama.config, "vocab_size": len(fields["tokens"])})
    path = directory / f"{model}-{pre}.gguf"
    write_gguf(path, case, tokenizer=_tokenizer(model, pre, fields))
    return _asked(path, {"texts": texts})


def main(only: list[str]) -> None:
    """Writes the file; of what is not among ``only``, where there is some, as it was."""
    cases = {**GGUF_CASES, **HYBRID_CASES, **{name: CASES[other] for name, other in OTHER_NAMES.items()}}
    models = [name for name in cases if name not in NOT_LLAMA_CPPS]
    kinds = [*(("gpt2", pre) for pre in _PRES), ("llama", None)]
    golden: dict[str, Any] = (
        json.loads((_DATA / "llama_cpp.json").read_text()) if only else {"models": {}, "tokenizers": []}
    )
    ids = {(entry["model"], entry["pre"]): entry["ids"] for entry in golden["tokenizers"]}
    vectors: dict[str, Any] = golden.get("embeddings", {})
    ranks, answers = golden.get("ranks", {}), golden.get("answers", {})
    decoders = golden.get("own_decoders", {})
    logits, known = golden["models"], json.loads((_DATA / "gguf_tokenizers.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for case in [case for case in models if not only or case in only]:
            logits[case] = _steps(directory, case, cases[case])
        for case in [case for case in (*GGUF_ENCODERS, *OTHER_FILES) if not only or case in only]:
            vectors[case] = _embeddings(directory, case)
        vectors |= {name: _own_embeddings(directory, name) for name in OWN if not only or name in only}
        decoders |= {name: _own_steps(directory, name) for name in OWN_DECODERS if not only or name in only}
        ranks |= {case: _ranks(directory, case) for case in GGUF_RERANKERS if not only or case in only}
        answers |= {case: _answers(directory, case) for case in ANSWERED if not only or case in only}
        for model, pre in [kind for kind in kinds if not only or kind[1] in only]:
            ids[model, pre] = _ids(directory, model, pre, known["vocabularies"][model], known["texts"])
    _write(
        {
            "made_by": "tests/goldens/make_llama_cpp_goldens.py",
            "xllamacpp": importlib.metadata.version("xllamacpp"),
            "models": {case: logits[case] for case in models if case in logits},
            "own_decoders": {name: decoders[name] for name in OWN_DECODERS if name in decoders},
            "embeddings": vectors,
            "ranks": ranks,
            "answers": answers,
            "tokenizers": [{"model": m, "pre": pre, "ids": ids[m, pre]} for m, pre in kinds if (m, pre) in ids],
        }
    )


def _write(golden: dict[str, Any]) -> None:
    text = json.dumps(golden, separators=(",", ":")).replace("},{", "},\n{").replace("],[", "],\n[")
    (_DATA / "llama_cpp.json").write_text(text + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] != "--only":
        _answer(sys.argv[1], json.loads(sys.argv[2]))
    else:
        main(sys.argv[2:])
