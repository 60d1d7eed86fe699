"""Processes that run a reference: another implementation of the same model."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import LARGE_JSON_BOUNDS, InputError, ProcessError, checked_choices, file_json

PYTHON_VARIABLE: Final = "TAPELINE_REFERENCE_PYTHON"
"""Environment variable that names the interpreter of references; that of this process where it is not set."""

_HERE: Final = Path(__file__).parent
_LAST_WORDS: Final = 2000
_PACKAGES: Final = {"transformers": "torch and transformers", "llama_cpp": "llama-cpp-python"}


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Tokens of which logits are compared.

    Attributes:
        ids: token ids: a prompt, then tokens of single steps.
        ends: ascending lengths of prefixes, to compare the last logits of each; the last is the prompt's.
        steps: number of tokens after the prompt, each fed in a step of its own.
    """

    ids: tuple[int, ...]
    ends: tuple[int, ...]
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return {"ids": list(self.ids), "ends": list(self.ends), "steps": self.steps}

    def positions(self) -> list[int]:
        """Returns the positions of the tokens with logits to compare."""
        return [end - 1 for end in self.ends] + list(range(self.ends[-1], self.ends[-1] + self.steps))


@checked_choices
@dataclass(frozen=True, slots=True)
class ReferenceRequest:
    """Work of a reference.

    Attributes:
        model: directory of a checkpoint, or a GGUF file.
        adapters: directory and weight of each adapter, in the order in which they are merged.
        texts: texts to encode.
        conversations: messages to render and encode.
        sequences: tokens to compute logits for, with a causal language model.
        capacity: number of positions that caches hold.
        inputs: inputs of one call of another model.
        results: names of the results of this call.
        scores: whether this call ranks texts.
    """

    model: Path
    adapters: Sequence[tuple[str, float]] = ()
    texts: Sequence[str] = ()
    conversations: Sequence[Sequence[Mapping[str, Any]]] = ()
    sequences: Sequence[TokenSequence] = ()
    capacity: int = 0
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    results: Sequence[str] = ()
    scores: bool = False


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """Results of a reference.

    Attributes:
        name: name and version of the implementation.
        versions: versions by package.
        texts: per text its ``ids``.
        conversations: per conversation ``text`` and ``ids``, or the ``error`` of the template.
        sequences: per sequence logits f32 [R, V] of the compared positions.
        results: results of the call by name.
    """

    name: str
    versions: Mapping[str, str]
    texts: Sequence[Mapping[str, Any]]
    conversations: Sequence[Mapping[str, Any]]
    sequences: Sequence[np.ndarray]
    results: Mapping[str, np.ndarray]


def reference_python(asked: str | None) -> str:
    """Returns the interpreter of references: the one that was asked for, of the environment, or this process's."""
    return asked or os.environ.get(PYTHON_VARIABLE) or sys.executable


class ReferenceProcess:
    """Process of an interpreter that runs transformers or llama.cpp; answers any number of requests.

    Args:
        python: interpreter that has the reference's packages.
        kind: ``transformers`` or ``llama_cpp``.
        packages: further packages that requests need: peft, sentence_transformers.

    Raises:
        InputError: the interpreter or a package is missing.
    """

    def __init__(self, python: str, kind: str, packages: Sequence[str] = ()) -> None:
        self._python: Final = python
        self._kind: Final = kind
        self._packages: Final = packages
        self._words: Final = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process: Final = self._started()

    def __enter__(self) -> "ReferenceProcess":
        """Returns the process."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):  # that it has died was said
                    stream.close()
        self._process.kill()
        self._process.wait()
        self._words.close()

    def run(self, request: ReferenceRequest) -> ReferenceAnswer:
        """Returns the results of a request.

        Raises:
            InputError: a package is missing, or the reference does not load the model.
            ProcessError: the process died.
        """
        with tempfile.TemporaryDirectory(prefix="tapeline-reference-") as name:
            folder = Path(name)
            self._ask(_written(request, folder))
            try:
                answer = file_json(folder / "answer.json", LARGE_JSON_BOUNDS, nonfinite=True)
                if "error" not in answer:
                    return _read(request, answer, folder / "answer.npz")
                refusal = self._refusal(request, answer["error"])
            except (EOFError, KeyError, OSError, TypeError, ValueError) as error:
                raise ProcessError(
                    f"verify=reference: the answer of {self._python} is damaged ({type(error).__name__}: {error}); its "
                    f"last words: {self._last_words()}"
                ) from None
            raise refusal

    def _started(self) -> "subprocess.Popen[str]":
        environment = dict(os.environ)
        if self._python != sys.executable:  # packages of this process are not those of another interpreter
            environment.pop("PYTHONPATH", None)
        command = [self._python, str(_HERE / f"run_{self._kind}_reference.py"), *self._packages]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                encoding="utf-8",
                env=environment,
                process_group=0,  # Ctrl-C is for this program, which kills the process
            )
        except OSError as error:
            self._words.close()
            raise InputError(
                f"reference_python={self._python}: cannot be started ({error.strerror}): give the Python interpreter "
                f"of an environment with {_PACKAGES[self._kind]}, by `reference_python` or {PYTHON_VARIABLE}"
            ) from error

    def _ask(self, request: str) -> None:
        """Waits until a request is answered."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # the answer that does not come says so
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise self._death()

    def _last_words(self) -> str:
        self._words.seek(0)
        return self._words.read()[-_LAST_WORDS:].decode("utf-8", "replace").strip() or "none"

    def _refusal(self, request: ReferenceRequest, error: Mapping[str, str]) -> InputError:
        message, kind = error["message"], self._kind
        if error["kind"] == "missing":
            needed = ", ".join([_PACKAGES[kind], *self._packages])
            return InputError(
                f"verify=reference runs {kind} in {self._python}, which lacks a package ({message}): install {needed} "
                f"there, or name the interpreter of an environment that has them by `reference_python` or "
                f"{PYTHON_VARIABLE}"
            )
        return InputError(
            f"verify=reference: {kind} cannot load {request.model} ({message}), so there is nothing to compare with: "
            f"choose another `verify`, or other versions of the reference's packages"
        )

    def _death(self) -> ProcessError:
        status = self._process.wait()
        hint = "; the machine may have run out of memory" if status == -signal.SIGKILL else ""
        return ProcessError(
            f"verify=reference: {self._kind} in {self._python} ended with status {status}{hint}; its last words: "
            f"{self._last_words()}"
        )


def run_reference(request: ReferenceRequest, python: str) -> ReferenceAnswer:
    """Runs transformers on a directory, or llama.cpp on a GGUF file, in a process of its own.

    Args:
        request: the work.
        python: interpreter that has the reference's packages.

    Raises:
        InputError: the interpreter or a package is missing, or the reference does not load the model.
        ProcessError: the process died.
    """
    with ReferenceProcess(python, kind_of(request.model), packages_of(request)) as process:
        return process.run(request)


def kind_of(model: Path) -> str:
    """Returns the reference of a model: llama.cpp for a GGUF file, transformers for a directory."""
    return "llama_cpp" if model.is_file() else "transformers"


def packages_of(request: ReferenceRequest) -> list[str]:
    """Returns the packages that a request needs beside transformers."""
    sentences = request.scores or "sentence_embedding" in request.results
    return [*(["peft"] if request.adapters else []), *(["sentence_transformers"] if sentences else [])]


def _written(request: ReferenceRequest, folder: Path) -> str:
    """Returns the request as JSON; arrays are in a file."""
    if request.inputs:
        arrays: Any = dict(request.inputs)
        np.savez(folder / "inputs.npz", **arrays)
    fields = {
        "model": str(request.model.absolute()),
        "adapters": [(str(Path(path).absolute()), weight) for path, weight in request.adapters],
        "output": str(folder),
        "texts": list(request.texts),
        "conversations": [list(map(dict, messages)) for messages in request.conversations],
        "sequences": [sequence.to_dict() for sequence in request.sequences],
        "capacity": request.capacity,
        "inputs": str(folder / "inputs.npz") if request.inputs else None,
        "results": list(request.results),
        "scores": request.scores,
    }
    return json.dumps(fields)


def _read(request: ReferenceRequest, answer: Mapping[str, Any], arrays: Path) -> ReferenceAnswer:
    with np.load(arrays, allow_pickle=False) as file:
        results = {key.removeprefix("result."): file[key] for key in file.files if key.startswith("result.")}
        sequences = [file[f"sequence.{place}"] for place in range(len(request.sequences))]
    texts, conversations = answer.get("texts", []), answer.get("conversations", [])
    if len(texts) != len(request.texts) or len(conversations) != len(request.conversations):
        raise ValueError(f"{len(texts)} texts and {len(conversations)} conversations")
    return ReferenceAnswer(answer["name"], answer["versions"], texts, conversations, sequences, results)
