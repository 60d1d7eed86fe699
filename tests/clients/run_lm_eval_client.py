"""lm_eval: local-completions and local-chat-completions, with tasks of our own and the server's tokenizer."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from _checks import QUESTION, TEXT, arguments, equal, raises, run

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1"}

import lm_eval
from lm_eval.tasks import TaskManager

URL, MODEL = arguments()
folder = tempfile.TemporaryDirectory()
ROWS = [{"question": "It is", "choices": [" sunny", " wet", " sunny in Paris"], "answer": 0, "text": TEXT}] * 3
COMMON: dict[str, Any] = {"dataset_path": "json", "test_split": "test", "num_fewshot": 0}
TASKS: dict[str, dict[str, Any]] = {
    "weather_choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "question",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    },
    "weather_text": {
        "output_type": "generate_until",
        "doc_to_text": f"Call me {QUESTION} Say",
        "doc_to_target": TEXT.removesuffix("."),
        "generation_kwargs": {"until": ["."], "max_gen_toks": 20},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    },
    "weather_rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "text",
        "metric_list": [{"metric": "word_perplexity", "aggregation": "weighted_perplexity", "higher_is_better": False}],
    },
}
Path(folder.name, "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
for name, task in TASKS.items():
    files = {"data_files": {"test": str(Path(folder.name, "rows.jsonl"))}, "cache_dir": folder.name}
    config = {**COMMON, **task, "task": name, "dataset_kwargs": files}
    Path(folder.name, f"{name}.yaml").write_text(json.dumps(config))


def evaluated(task: str, kind: str, route: str, model: str = MODEL, **options: Any) -> dict[str, Any]:
    arguments = f"model={model},base_url={URL}/v1/{route},tokenizer_backend=remote,max_length=4096,max_retries=1"
    manager = TaskManager(include_path=folder.name, include_defaults=False)
    done = lm_eval.simple_evaluate(
        model=kind, model_args=arguments, tasks=[task], task_manager=manager, log_samples=True, **options
    )
    return {**done["results"][task], "samples": done["samples"][task]}


def likelihood() -> None:
    done = evaluated("weather_choice", "local-completions", "completions")
    equal(done["acc,none"], 1.0)
    ((sunny, greedy), (wet, _), (paris, _)) = (one[0] for one in done["samples"][0]["resps"])
    assert greedy, done["samples"][0]
    assert -0.01 < sunny < 0, sunny
    assert max(wet, paris) < -15, (wet, paris)


def rolling() -> None:
    done = evaluated("weather_rolling", "local-completions", "completions")
    assert 1 < done["word_perplexity,none"] < 1000, done["word_perplexity,none"]


def generate() -> None:
    equal(evaluated("weather_text", "local-completions", "completions")["exact_match,none"], 1.0)


def chat() -> None:
    done = evaluated("weather_text", "local-chat-completions", "chat/completions", apply_chat_template=True)
    equal(done["exact_match,none"], 1.0)


def error() -> None:
    raises(
        lambda: evaluated("weather_text", "local-completions", "completions", "absent"),
        Exception,
        match="404 Client Error",
    )


run(chat=chat, likelihood=likelihood, rolling=rolling, generate=generate, error=error)
