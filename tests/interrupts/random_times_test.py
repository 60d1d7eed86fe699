"""Ctrl-C on a terminal at random times, over all commands; prints the figures (``TAPELINE_LONG=1``).

``TAPELINE_TRIES`` is the number of tries, ``TAPELINE_SEED`` seeds the times.
"""

import collections
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import tapeline
from tapeline.command import COMMANDS
from tapeline.demo import write_demo_checkpoint
from tests.goldens.speech.files import SPEECH, read_speech_goldens, write_speech_checkpoint
from tests.interrupts._terminal import End, on_terminal
from tests.product._bundles import export
from tests.product._rankers import write_ranker
from tests.product._sentences import export_sentences

_TRIES: Final = int(os.environ.get("TAPELINE_TRIES", "200"))
_SEED: Final = int(os.environ.get("TAPELINE_SEED", "13"))
_POSITIONS: Final = 16384
_STORY: Final = ("--prompt=It was", "--max_new_tokens=16000", "--ignore_eos")
_SENTENCE_INPUTS: Final = ("token_ids", "attention_mask", "token_type_ids")
_STARTED: Final = 0.1  # seconds that Python itself takes to start, during which nobody can handle a signal
_LONGEST: Final = 12.0  # seconds within which commands that do not end by themselves are interrupted


def _write_inputs(folder: Path) -> None:
    write_demo_checkpoint(folder / "model")
    config = json.loads((folder / "model/config.json").read_text())
    (folder / "model/config.json").write_text(json.dumps(config | {"max_position_embeddings": _POSITIONS}))
    export(folder / "model", folder / "demo", max_sequence=_POSITIONS)
    (folder / "demo/chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    tapeline.export(folder / "model", folder / "mesh", verify="none", max_sequence=512, mesh="tp=2", target=[])
    export(folder / "model", folder / "slots", slots=2, max_sequence=512)
    export_sentences(folder / "sentence_model", folder / "sentences")
    export(write_ranker(folder / "ranking_model"), folder / "ranking", batch=2, sequence=12)
    (folder / "speech_model").mkdir()
    write_speech_checkpoint(folder / "speech_model", read_speech_goldens()["shapes"])
    export(folder / "speech_model", folder / "speech", sequence=4)
    for name in _SENTENCE_INPUTS:
        np.save(folder / f"{name}.npy", np.ones((2, 8), np.int32))
    (folder / "text.txt").write_text("It was the best of times, it was the worst of times. " * 400)


def _commands() -> Mapping[str, Sequence[str]]:
    """Returns the flags of each command; a name behind a slash tells two calls of one command apart."""
    return {
        "export": ("--model=demo", "--output=out"),
        "generate": ("--bundle=demo", *_STORY),
        "generate/model": ("--model=demo", "--prompt=It was", "--max_new_tokens=400", "--ignore_eos"),
        "generate/jax": ("--bundle=demo", "--backend=jax", *_STORY),
        "chat": ("--bundle=demo",),
        "run": ("--bundle=sentences", "--output_dir=run", *(f"--input={name}={name}.npy" for name in _SENTENCE_INPUTS)),
        "serve": ("--bundle=slots", "--port=0"),
        "serve/model": ("--model=demo", "--port=0", "--slots=3"),
        "embed": ("--bundle=sentences", "--text=w5 w9", "--text=w8"),
        "rerank": ("--bundle=ranking", "--query=w5", "--document=w6 w7", "--document=w9"),
        "transcribe": ("--bundle=speech", f"--audio={SPEECH}"),
        "inspect": ("--bundle=demo",),
        "compare": ("--actual=demo", "--reference=eager"),
        "train": ("--model=model", "--data=text.txt", "--output=trained", "--lora=2", "--steps=50", "--sequence=32"),
        "launch": ("--processes=2", "--", "generate", "--bundle=mesh", "--backend=jax", "--mesh=tp=2", *_STORY),
        "tune": ("list",),
        "explain": ("InputError",),
        "doctor": (),
        "completion": ("bash",),
        "cache": ("list",),
        "make-checkpoint": ("--output=checkpoint", "--preset=tiny"),
    }


def _try(folder: Path, name: str, flags: Sequence[str], seconds: float) -> End:
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    shutil.rmtree(folder / "trained", ignore_errors=True)
    with on_terminal(folder, name.partition("/")[0], *flags) as terminal:
        if terminal.read_for(seconds):
            terminal.press()
        return terminal.end()


def _is_right(end: End, name: str) -> bool:
    if end.code == -signal.SIGINT:  # Python itself had not started, which takes long on a busy machine
        return True
    if name.startswith(("serve", "launch")):  # lines of the log stand before
        return end.code == 130 and end.text.endswith("error: interrupted\n") and "Traceback" not in end.text
    return end.is_clean


def _durations(folder: Path) -> Mapping[str, float]:
    """Returns the seconds that commands run, within bounds."""
    durations: dict[str, float] = {}
    failed: list[str] = []
    for name, flags in _commands().items():
        began = time.monotonic()
        end = _try(folder, name, flags, _LONGEST)
        durations[name] = min(time.monotonic() - began, _LONGEST)
        print(f"{name}: {durations[name]:.1f} s, {end.code}", flush=True)
        failed += [] if end.code in (0, 130) else [end.text]
    assert not failed
    return durations


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="200 commands on terminals: TAPELINE_LONG=1")
def test_every_command_ends_whenever_it_is_interrupted(tmp_path: Path) -> None:
    assert {name.partition("/")[0] for name in _commands()} == {*COMMANDS}
    _write_inputs(tmp_path)
    durations, times = _durations(tmp_path), random.Random(_SEED)
    codes: collections.Counter[int | None] = collections.Counter()
    slowest, wrong = 0.0, []
    names = [*durations]
    for number in range(_TRIES):
        name = names[number % len(names)]
        end = _try(tmp_path, name, _commands()[name], times.uniform(_STARTED, max(durations[name], 2 * _STARTED)))
        if end.seconds is None:  # it had ended before
            continue
        codes[end.code] += 1
        slowest = max(slowest, end.seconds)
        if not _is_right(end, name) and end.code != 0:
            wrong.append((name, end))
            print(f"WRONG {name}: {end.code}, {end.seconds:.2f} s: {end.text[-600:]!r}", flush=True)
        print(f"{number}: {name} {end.code} {end.seconds:.2f} s", flush=True)
    print(f"{sum(codes.values())} interrupts of {_TRIES} tries; exit codes {dict(codes)}; slowest end {slowest:.2f} s")
    assert not wrong
