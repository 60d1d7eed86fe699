"""Runs transformers on a checkpoint, for `export --verify=reference`.

`tapeline.reference` starts this file with an interpreter that has torch and transformers. Requests arrive on stdin, a
line of JSON each; answers go to `answer.json` and `answer.npz` in the folder of the request. The network is not used.
Arguments are packages that requests need beside these: peft, sentence_transformers.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

for _name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
    os.environ[_name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

MISSING: Any = None
try:
    import numpy as np
    import torch
    import transformers

    if "peft" in sys.argv[1:]:
        import peft
    if "sentence_transformers" in sys.argv[1:]:
        import sentence_transformers
except ImportError as error:
    MISSING = error

_INPUTS = {"token_ids": "input_ids", "decoder_token_ids": "decoder_input_ids"}


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
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    answer: dict[str, Any] = {"name": f"transformers {transformers.__version__}", "versions": versions}
    if request["texts"]:
        answer.update(_tokenized(request))
    arrays: dict[str, Any] = {}
    if request["sequences"]:
        model = _loaded(request)
        for place, sequence in enumerate(request["sequences"]):
            arrays[f"sequence.{place}"] = _logits(model, sequence)
    if request["inputs"]:
        with np.load(request["inputs"], allow_pickle=False) as file:
            arrays |= _forward(request, {name: file[name] for name in file.files})
    return answer, arrays


def _tokenized(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the ids of texts, and text and ids of conversations; an error if a template refuses one."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(request["model"])
    except Exception as error:
        raise ReferenceError("load", f"its tokenizer: {_told(error)}") from error
    conversations = []
    for messages in request["conversations"]:
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # noqa: BLE001 - templates raise what they like, and refusals are compared
            conversations.append({"error": _told(error)})
        else:
            conversations.append({"text": text, "ids": tokenizer(text, add_special_tokens=False).input_ids})
    texts = [{"ids": tokenizer(text).input_ids} for text in request["texts"]]
    return {"texts": texts, "conversations": conversations}


def _loaded(request: dict[str, Any]) -> Any:
    """Returns the model in f32, with all of its weights from the checkpoint."""
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    major = int(transformers.__version__.partition(".")[0])
    if major >= 5:
        options["experts_implementation"] = "eager"
    else:
        options["torch_dtype"] = options.pop("dtype")
    try:
        config = transformers.AutoConfig.from_pretrained(request["model"])
        name = (config.architectures or [""])[0]
        kind = getattr(transformers, name, None)
        if kind is None or getattr(config, "vision_config", None) is None:
            kind = kind or transformers.AutoModel
        if config.model_type == "gemma3n":  # its vision tower needs a further library
            config, kind = config.get_text_config(), transformers.AutoModelForCausalLM
        model, info = kind.from_pretrained(request["model"], config=config, output_loading_info=True, **options)
    except Exception as error:
        raise ReferenceError("load", _told(error)) from error
    for problem in ("missing_keys", "mismatched_keys", "error_msgs"):
        if keys := sorted(map(str, info.get(problem) or ())):
            raise ReferenceError("load", f"{problem}: {', '.join(keys[:4])} ({len(keys)} in all)")
    return _adapted(model, request["adapters"]).eval()


def _adapted(model: Any, adapters: list[tuple[str, float]]) -> Any:
    """Returns the model with all adapters, each times its weight: live with one adapter, else merged.

    PEFT's merge changes both of two tied tensors, its live model each for itself. PEFT cannot activate several adapters
    of which one replaces tensors.
    """
    if not adapters:
        return model
    names = [str(place) for place in range(len(adapters))]
    try:
        model = peft.PeftModel.from_pretrained(model, adapters[0][0], adapter_name=names[0])
        for name, (path, _) in zip(names[1:], adapters[1:], strict=True):
            model.load_adapter(path, adapter_name=name)
        for module in model.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                for name, (_, weight) in zip(names, adapters, strict=True):
                    if name in module.scaling:
                        module.scaling[name] *= weight
        return model if len(names) == 1 else model.merge_and_unload(adapter_names=names)
    except Exception as error:
        raise ReferenceError("load", f"adapters: {_told(error)}") from error


class _Forced(transformers.LogitsProcessor if MISSING is None else object):
    """Makes generation choose given tokens."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Leaves the next of the tokens alone possible."""
        place = input_ids.shape[1]
        chosen = torch.full_like(scores, -torch.inf)
        chosen[:, self._ids[place] if place < len(self._ids) else 0] = 0
        return chosen


def _is_run_anew(model: Any) -> bool:
    """Returns whether steps run without a cache, because longrope runs a sequence again beyond the original length.

    Only some of transformers' classes do so while they generate; others keep the keys of the short factors.
    """
    fields = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    return any(part.get("rope_type") == "longrope" for part in (fields, *fields.values()) if isinstance(part, dict))


def _logits(model: Any, sequence: dict[str, Any]) -> Any:
    """Returns logits [R, V]: the last ones of each prefix as a prompt of its own, then those of steps with a cache."""
    ids = sequence["ids"]
    rows = [model(torch.tensor([ids[:end]]), use_cache=False).logits[0, -1].float().numpy() for end in sequence["ends"]]
    prompt = torch.tensor([ids[: sequence["ends"][-1]]])
    model.generation_config = transformers.GenerationConfig()
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=sequence["steps"] + 1,
        output_logits=True,
        return_dict_in_generate=True,
        logits_processor=[_Forced(ids)],
        use_cache=not _is_run_anew(model),
    )
    rows[-1] = made.logits[0][0].float().numpy()
    return np.stack([*rows, *(row[0].float().numpy() for row in made.logits[1:])])


def _forward(request: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns the results of one call of an encoder or of an encoder-decoder."""
    tensors = {name: torch.from_numpy(x if x.dtype.kind == "f" else x.astype(np.int64)) for name, x in inputs.items()}
    if "sentence_embedding" in request["results"] or request["scores"]:
        return _sentence(request, tensors)
    model = _loaded(request)
    if "input_features" in tensors and "token_ids" in tensors:
        tensors["decoder_token_ids"] = tensors.pop("token_ids")
    results = model(**{_INPUTS.get(name, name): tensor for name, tensor in tensors.items()})
    return {
        f"result.{name}": results[name].float().numpy() for name in request["results"] if results.get(name) is not None
    }


def _sentence(request: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """Returns the embedding of texts, by the modules that modules.json names."""
    if request["scores"]:
        raise ReferenceError("load", "rerankers whose score is that of tokens are not run")
    options = {"attn_implementation": "eager", "dtype": torch.float32}
    try:
        model = sentence_transformers.SentenceTransformer(
            request["model"], device="cpu", model_kwargs=options, local_files_only=True
        )
    except Exception as error:
        raise ReferenceError("load", _told(error)) from error
    results = model({_INPUTS.get(name, name): tensor for name, tensor in tensors.items()})
    names = {"last_hidden_state": "token_embeddings"}
    found = {name: results.get(names.get(name, name)) for name in request["results"]}
    return {f"result.{name}": x.float().numpy() for name, x in found.items() if x is not None}


def _told(error: Exception) -> str:
    """Returns kind and first line of an error."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


if __name__ == "__main__":
    main()
