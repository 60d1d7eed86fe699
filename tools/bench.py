"""Measures speed and memory, beside peers, in fresh processes.

bench --suite all --checkpoint DIR --write_docs docs/benchmarks.md
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from absl import flags

from lang_core import InputError, near_names
from tapeline import cli
from tools.benching.suites import (
    MORE_ROUNDS,
    PEERS,
    PICTURE_PEER,
    ROUNDS,
    SENTENCE_PEERS,
    SERVER,
    SPEECH_PEER,
    SUITES,
    TORCH,
    Peer,
    PicturePeer,
    Plan,
    Run,
    Runner,
    SentencePeer,
    ServeGroup,
    ServerPeer,
    SpeechPeer,
    TorchPeer,
    as_text,
    find_peer,
    find_picture_peer,
    find_sentence_peer,
    find_server,
    find_speech_peer,
    find_torch_peer,
    group_of_file,
    run_suite,
    tiny_plan,
    write_docs,
    write_json,
)

_OF_FILES: Final = ("decode", "serve")
_STORED: Final = {"32": "f32", "16": "bf16", "Q8_0": "q8_0", "Q4_0": "q4_0"}
_STORED_BITS: Final = {"engines": [*_STORED], "pages": ["Q8_0", "Q4_0"], "rows": ["16", "Q8_0", "Q4_0"]}
_OF_BITS: Final = (*_OF_FILES, *_STORED_BITS)
_SUITE: Final = flags.DEFINE_list("suite", "all", f"A comma list of {', '.join(SUITES)}; or all.")
_ROUNDS: Final = flags.DEFINE_integer(
    "rounds",
    None,
    f"How often each measurement is repeated; where not given {ROUNDS} times, "
    f"{', '.join(f'{rounds} for {suite}' for suite, rounds in MORE_ROUNDS.items())}.",
    lower_bound=1,
)
_SIZES: Final = flags.DEFINE_enum("sizes", "full", ["full", "tiny"], "tiny: only to see that everything works.")
_OUTPUT: Final = flags.DEFINE_string("output", None, "Write all figures here, as JSON.")
_WRITE_DOCS: Final = flags.DEFINE_string(
    "write_docs", None, "Replace the measured suites' sections of this file, which is docs/benchmarks.md."
)
_WORKDIR: Final = flags.DEFINE_string(
    "workdir", None, "Where to put temporary files, 10 GB or more; the machine's folder for such where not given."
)
_CHECKPOINT: Final = flags.DEFINE_string(
    "checkpoint",
    None,
    "A Hugging Face directory whose whole export the suite streaming measures, and the suite engines' model, which is "
    "else TinyLlama's shapes; make_checkpoint.",
)
_PEER: Final = flags.DEFINE_enum(
    "peer",
    None,
    [*PEERS, SERVER, TORCH, *SENTENCE_PEERS, SPEECH_PEER],
    f"Another system that takes turns: {SERVER} in the suite serve, {TORCH} in engines, {SENTENCE_PEERS[0]} in "
    f"embeddings, {SENTENCE_PEERS[1]} beside it and in pictures, {SPEECH_PEER} in speech, others in decode.",
)
_PEER_PYTHON: Final = flags.DEFINE_string(
    "peer_python",
    None,
    f"The Python interpreter that has the peer, such as llama-cpp-python or {TORCH}; this program's if not given.",
)
_PEER_SERVER: Final = flags.DEFINE_string(
    "peer_server", None, f"The peer's program, {SERVER}; the one of that name in PATH if not given."
)
_BITS: Final = flags.DEFINE_list(
    "bits",
    "all",
    "What of the suites decode, serve, engines, pages and rows: a comma list of 32, 16, Q8_0, Q4_0, Q4_K, ...; or all.",
)
_DEVICE: Final = flags.DEFINE_enum(
    "device", None, ["cuda"], "Where the suite engines runs, beside the device's limit; the CPU where not given."
)
_GGUF: Final = flags.DEFINE_string(
    "gguf", None, "A GGUF file that the suites decode and serve measure, beside --bits where that is given."
)
_ACTIVATIONS: Final = flags.DEFINE_enum(
    "activations",
    "exact",
    ["exact", "q8", "both"],
    "What x of packed products is in the suite serve, or both beside each other; llama.cpp's is q8.",
)
_SENTENCE_MODEL: Final = flags.DEFINE_string(
    "sentence_model",
    None,
    "A directory of sentence-transformers that the suite embeddings measures; all-MiniLM-L6-v2's shapes if not given.",
)
_SPEECH_MODEL: Final = flags.DEFINE_string(
    "speech_model",
    None,
    "A Whisper of CTranslate2, with tokenizer.json, that the suite speech measures; random weights if not given.",
)
_SPEECH_FILE: Final = flags.DEFINE_string(
    "speech_file", None, "A WAV file of English speech that the suite speech transcribes; tones if not given."
)
_REQUESTS: Final = flags.DEFINE_float(
    "requests", 1.0, "The share of the suite serve's requests that is sent, for a shorter run.", lower_bound=0.01
)


def _some(flag: str, given: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Returns the names in a flag's value."""
    if list(given) == ["all"]:
        return known
    for name in given:
        if name not in known:
            there = ", ".join([*known, "all"])
            raise InputError(f"--{flag}={name}: unknown: there are {there}{near_names(name, known)}")
    if not given:
        raise InputError(f"--{flag}= names nothing: name some of {', '.join(known)}, or all")
    return given


def _plan() -> Plan:
    checkpoint = cli.user_path(_CHECKPOINT.value).absolute() if _CHECKPOINT.value else None
    if checkpoint is not None and not (checkpoint / "config.json").is_file():
        raise InputError(f"--checkpoint={checkpoint}: there is no config.json: give a Hugging Face directory")
    plan = tiny_plan(checkpoint) if _SIZES.value == "tiny" else replace(Plan(), checkpoint=checkpoint)
    groups = {group.bits.removesuffix(" bits"): group for group in plan.decode_groups}
    bits = _some("bits", _BITS.value, list(groups))
    chosen = [groups[name] for name in bits]
    served = [group for group in plan.serve_groups if group.bits in bits]
    if _GGUF.value:
        path = cli.user_path(_GGUF.value).absolute()
        if not path.is_file():
            raise InputError(f"--gguf={path}: no such file: name a GGUF file")
        beside = _BITS.value != ["all"]
        chosen = [*(chosen if beside else ()), group_of_file(path)]
        served = [*(served if beside else ()), ServeGroup(path.stem, path)]
    activations = ("exact", "q8") if _ACTIVATIONS.value == "both" else (_ACTIVATIONS.value,)
    plan = replace(plan, decode_groups=tuple(chosen), serve_groups=tuple(served), activations=activations)
    sizes = plan.serve if _REQUESTS.value == 1 else plan.serve.fewer(_REQUESTS.value)
    plan = replace(plan, serve=sizes, peer=_peer(), server=_server())
    plan = replace(plan, engine_device=_DEVICE.value, engine_peer=_torch_peer())
    plan = replace(plan, sentence_peer=_sentence_peer(), sentence_model=_sentence_model())
    plan = replace(plan, speech_peer=_speech_peer(), speech_model=_speech_model(), speech_file=_speech_file())
    return _of_stored(replace(plan, picture_peer=_picture_peer()), bits)


def _of_stored(plan: Plan, bits: Sequence[str]) -> Plan:
    """Returns the plan whose bundles have the weights that ``--bits`` names, in the suites that quantize them."""
    chosen = {suite: tuple(_STORED[name] for name in names if name in bits) for suite, names in _STORED_BITS.items()}
    for suite, names in _STORED_BITS.items():
        if not chosen[suite] and suite in _SUITE.value:
            raise InputError(f"--bits={','.join(bits)}: the suite {suite} has {', '.join(names)}: name one of them")
    if _SIZES.value == "tiny":
        return plan
    pages = plan.page_bits if _BITS.value == ["all"] else chosen["pages"]
    return replace(plan, engine_bits=chosen["engines"], row_bits=chosen["rows"], page_bits=pages)


def _server() -> ServerPeer | None:
    if _PEER.value == SERVER:
        program = _PEER_SERVER.value or SERVER
        return find_server(str(cli.user_path(program).absolute()) if os.sep in program else program)
    if _PEER_SERVER.value is not None:
        raise InputError(f"--peer_server is the peer's program: give --peer={SERVER} too")
    return None


def _torch_peer() -> TorchPeer | None:
    if _PEER.value != TORCH:
        return None
    peer = find_torch_peer(_peer_python())
    if peer.settings is None:
        cli.say(f"{peer.python} has no {TORCH}: nothing is measured of it")
    return peer


def _picture_peer() -> PicturePeer | None:
    if _PEER.value != PICTURE_PEER or "pictures" not in _some("suite", _SUITE.value, list(SUITES)):
        return None
    peer = find_picture_peer(_peer_python())
    if peer.settings is None:
        cli.say(f"{peer.python} lacks packages of {PICTURE_PEER}: nothing is measured of it")
    return peer


def _sentence_peer() -> SentencePeer | None:
    if _PEER.value not in SENTENCE_PEERS or "embeddings" not in _some("suite", _SUITE.value, list(SUITES)):
        return None
    peer = find_sentence_peer(_PEER.value, _peer_python())
    if peer.settings is None:
        cli.say(f"{peer.python} lacks packages of {_PEER.value}: nothing is measured of it")
    return peer


def _sentence_model() -> Path | None:
    if not _SENTENCE_MODEL.value:
        return None
    path = cli.user_path(_SENTENCE_MODEL.value).absolute()
    if not (path / "modules.json").is_file():
        raise InputError(f"--sentence_model={path}: no modules.json: name a directory of sentence-transformers")
    return path


def _speech_peer() -> SpeechPeer | None:
    if _PEER.value != SPEECH_PEER:
        return None
    peer = find_speech_peer(_peer_python())
    if peer.settings is None:
        cli.say(f"{peer.python} has no {SPEECH_PEER}: nothing is measured of it")
    return peer


def _speech_model() -> Path | None:
    path = cli.user_path(_SPEECH_MODEL.value).absolute() if _SPEECH_MODEL.value else None
    if path is not None and not all((path / name).is_file() for name in ("model.bin", "tokenizer.json")):
        raise InputError(f"--speech_model={path}: no model.bin and tokenizer.json: name a Whisper of CTranslate2")
    return path


def _speech_file() -> Path | None:
    path = cli.user_path(_SPEECH_FILE.value).absolute() if _SPEECH_FILE.value else None
    if path is not None and not path.is_file():
        raise InputError(f"--speech_file={path}: no such file: name a WAV file")
    return path


def _peer_python() -> str:
    """Returns the peer's interpreter; a bare name is looked for in PATH."""
    python = _PEER_PYTHON.value
    # A link is not followed: a virtual environment is known by it.
    return sys.executable if python is None else str(cli.user_path(python).absolute()) if os.sep in python else python


def _peer() -> Peer | None:
    if _PEER.value not in PEERS:
        if _PEER_PYTHON.value is not None and _PEER.value not in (TORCH, *SENTENCE_PEERS, SPEECH_PEER):
            raise InputError(f"--peer_python is the peer's interpreter: give --peer=llama.cpp or --peer={TORCH} too")
        return None
    place = _peer_python()
    peer = find_peer(place)
    if peer.settings is None:
        cli.say(f"{place} has no llama-cpp-python: nothing is measured of llama.cpp (docs/benchmarks.md: its install)")
    return peer


def _rounds(suite: str) -> int:
    return _ROUNDS.value or MORE_ROUNDS.get(suite, ROUNDS)


def _workdir() -> Path | None:
    if _WORKDIR.value is None:
        return None
    path = cli.user_path(_WORKDIR.value).absolute()
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise InputError(f"--workdir={path}: no directory that can be written: make it, or name another")
    return path


def _command(suite: str) -> str:
    flags = [f"--suite {suite}", f"--rounds {_rounds(suite)}"]
    if _SIZES.value != "full":
        flags.append(f"--sizes {_SIZES.value}")
    if _CHECKPOINT.value and suite in ("streaming", "engines"):
        flags.append("--checkpoint DIR")
    if _BITS.value != ["all"] and suite in _OF_BITS:
        flags.append(f"--bits {','.join(_BITS.value)}")
    if _GGUF.value and suite in _OF_FILES:
        flags.append(f"--gguf {Path(_GGUF.value).name}")
    if _ACTIVATIONS.value != "exact" and suite == "serve":
        flags.append(f"--activations {_ACTIVATIONS.value}")
    if _REQUESTS.value != 1 and suite == "serve":
        flags.append(f"--requests {_REQUESTS.value:g}")
    if suite == "engines":
        flags += [f"--device {_DEVICE.value}"] if _DEVICE.value else []
        flags += [f"--peer {TORCH} --peer_python PYTHON"] if _PEER.value == TORCH else []
    if suite == "embeddings":
        flags += ["--sentence_model DIR"] if _SENTENCE_MODEL.value else []
        flags += [f"--peer {_PEER.value} --peer_python PYTHON"] if _PEER.value in SENTENCE_PEERS else []
    if suite == "pictures" and _PEER.value == PICTURE_PEER:
        flags.append(f"--peer {PICTURE_PEER} --peer_python PYTHON")
    if suite == "speech":
        flags += ["--speech_model DIR"] if _SPEECH_MODEL.value else []
        flags += ["--speech_file FILE"] if _SPEECH_FILE.value else []
        flags += [f"--peer {SPEECH_PEER} --peer_python PYTHON"] if _PEER.value == SPEECH_PEER else []
    if _PEER.value in PEERS and suite == "decode":
        flags.append(f"--peer {_PEER.value} --peer_python PYTHON")
    if _PEER.value == SERVER and suite == "serve":
        flags.append(f"--peer {SERVER} --peer_server PROGRAM")
    return f"bazel run //tools:bench -- {' '.join(flags)}"


def main() -> None:
    """Measures, prints tables, and writes what was asked for."""
    suites, plan, above = _some("suite", _SUITE.value, list(SUITES)), _plan(), _workdir()
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="tapeline-bench-", dir=above) as workdir:
        for suite in suites:
            cli.say(f"suite {suite} ...")
            runner = Runner(_rounds(suite), Path(workdir), cli.say)
            runs.append(run_suite(suite, runner, plan, _command(suite)))
            print(as_text(runs[-1]), flush=True)
            if _WRITE_DOCS.value:
                write_docs(cli.user_path(_WRITE_DOCS.value), runs[-1:])
            if _OUTPUT.value:
                write_json(cli.user_path(_OUTPUT.value), runs)


if __name__ == "__main__":
    cli.run(main)
