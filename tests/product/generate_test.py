"""tools:generate, with the demo model's tokenizer and without one."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapeline.bundle import Bundle
from tapeline.command import load_command
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.product import _bundles
from tests.product._bundles import Finished, export_case, invoke, refused

compiled_once = _bundles.compiled_once
demo, several = _bundles.demo_layer, _bundles.demo_slots
pytestmark = pytest.mark.usefixtures("compiled_once")

Generate = Callable[..., Finished]
_CASE = CASES["tinyllama_4x"]
_PROMPT = ",".join(map(str, _CASE.prompt[0]))


@pytest.fixture(scope="module")
def golden_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A golden case without a tokenizer; a call of prefill takes 4 of its 11 tokens."""
    folder = tmp_path_factory.mktemp("golden")
    return export_case(_CASE, folder, sequence=4, max_sequence=len(_CASE.prompt[0]) + _CASE.steps)


@pytest.fixture
def generating(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Finished]:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return lambda bundle, *flags: invoke("generate", capsys, f"--bundle={bundle}", *flags)


def test_a_stop_string_ends_the_answer(demo: Path, generating: Generate) -> None:
    flags = ("--prompt=It was", "--max_new_tokens=16")
    whole = generating(demo, *flags).out
    stop = whole[3:6]
    assert stop.strip()
    assert generating(demo, *flags, f"--stop={stop}").out == whole[: whole.index(stop)] + "\n"
    assert generating(demo, *flags, "--stop=never in it", f"--stop={stop}").out == whole[: whole.index(stop)] + "\n"
    answer = json.loads(generating(demo, *flags, f"--stop={stop}", "--format=json").out)["answers"][0]
    assert (answer["text"], answer["ended"]) == (whole[: whole.index(stop)], "stop")
    refused = generating(demo, *flags, "--stop=")
    assert (refused.code, refused.out) == (2, "")
    assert "--stop" in refused.err


def test_every_flag_of_the_contract_is_there() -> None:
    promised = (
        "bundle prompt token_ids max_new_tokens temperature top_k top_p min_p repetition_penalty seed ignore_eos "
        "device stats logits"
    )
    ours = set(load_command("generate").FLAGS)
    assert ours >= set(promised.split())


def test_the_program_says_what_transformers_says(golden_bundle: Path, tmp_path: Path) -> None:
    golden = read_golden(_CASE.name)
    code = "import sys; from tapeline.command import main; sys.exit(main())"
    flags = (
        f"--bundle={os.path.relpath(golden_bundle, tmp_path)}",
        f"--token_ids={_PROMPT}",
        f"--max_new_tokens={_CASE.steps}",
        "--ignore_eos",
        "--logits=logits.bin",
        "--stats=stats.json",
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "BUILD_WORKING_DIRECTORY": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, "generate", *flags], env=environment, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ",".join(map(str, golden.tokens[0])) + "\n"
    logits = np.load(tmp_path / "logits.bin")
    assert (logits.dtype, logits.shape) == (np.float32, golden.logits[0].shape)
    error = np.abs(logits - golden.logits[0]).max(-1) / np.abs(golden.logits[0]).max(-1)
    assert error.max() < 2e-4
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["device"] == "local-task"
    assert (stats["prompt_tokens"], stats["new_tokens"]) == (len(_CASE.prompt[0]), _CASE.steps)
    for figure in ("prompt_tokens_per_second", "decode_tokens_per_second", "time_to_first_token_seconds"):
        assert stats[figure] > 0
    assert stats["peak_rss_bytes"] > 10**7
    # A step takes one id in and gives one back, and the logits, for --logits; the caches stay where they are.
    assert stats["bytes_copied_per_step"] == 4 * _CASE.config["vocab_size"]
    assert stats["token_bytes_per_step"] == 4 + 4
    counted = Bundle(golden_bundle).config.targets["llvm-cpu"]["schedule"]
    assert stats["dispatches"] == {name: counted[name]["dispatches"] for name in ("prefill", "decode")}
    assert min(stats["dispatches"].values()) > 10 * _CASE.config["num_hidden_layers"]


def test_text_streams_and_a_seed_repeats_it(demo: Path, generating: Generate) -> None:
    flags = ("--prompt=the tape", "--max_new_tokens=12", "--ignore_eos", "--temperature=1.5")
    one, again, other = (generating(demo, *flags, f"--seed={seed}") for seed in (1, 1, 2))
    assert (one.code, one.err) == (0, "")
    assert one.out.endswith("\n")
    assert len(one.out) > 5
    assert one == again
    assert one.out != other.out
    greedy = [generating(demo, "--prompt=the tape", "--max_new_tokens=12", f"--seed={seed}").out for seed in (1, 2)]
    assert greedy[0] == greedy[1]


def test_an_end_token_ends_and_is_not_shown_unless_ignored(golden_bundle: Path, generating: Generate, tmp_path: Path):
    bundle = tmp_path / "bundle"
    shutil.copytree(golden_bundle, bundle)
    tokens = read_golden(_CASE.name).tokens[0].tolist()
    end = next(i for i in range(2, 12) if tokens[i] not in tokens[:i])
    config = json.loads((bundle / "config.json").read_text())
    (bundle / "config.json").write_text(json.dumps({**config, "eos_token_id": [tokens[end]]}))
    flags = (f"--token_ids={_PROMPT}", "--max_new_tokens=12", "--stats=stats.json", "--verify_files=off")
    assert generating(bundle, *flags).out == ",".join(map(str, tokens[:end])) + "\n"
    assert json.loads((tmp_path / "stats.json").read_text())["new_tokens"] == end + 1
    assert generating(bundle, *flags, "--ignore_eos").out == ",".join(map(str, tokens)) + "\n"


@pytest.mark.parametrize(
    ("flags", "copied"),
    [
        ((), 0),
        (("--top_k=3", "--top_p=0.5"), 0),  # of the likeliest tokens the likeliest is among them
        (("--temperature=0.5",), 4 * _CASE.config["vocab_size"]),
        (("--repetition_penalty=1.5",), 4 * _CASE.config["vocab_size"]),
    ],
)
def test_logits_leave_the_device_only_where_they_are_needed(
    golden_bundle: Path, generating: Generate, tmp_path: Path, flags: tuple[str, ...], copied: int
) -> None:
    wanted = (f"--token_ids={_PROMPT}", f"--max_new_tokens={_CASE.steps}", "--stats=s.json", *flags)
    done = generating(golden_bundle, *wanted)
    stats = json.loads((tmp_path / "s.json").read_text())
    cut = f"(cut off by --max_new_tokens={_CASE.steps})\n"
    assert (done.code, done.err, stats["bytes_copied_per_step"]) == (0, cut, copied)
    assert stats["token_bytes_per_step"] == (8 if copied == 0 else 4)
    if not copied:
        assert done.out == ",".join(map(str, read_golden(_CASE.name).tokens[0])) + "\n"


def test_one_token_has_no_steps_to_speak_of(golden_bundle: Path, generating: Generate, tmp_path: Path) -> None:
    assert generating(golden_bundle, "--token_ids=1", "--max_new_tokens=1", "--stats=s.json").code == 0
    stats = json.loads((tmp_path / "s.json").read_text())
    assert stats["decode_tokens_per_second"] is None
    assert stats["bytes_copied_per_step"] == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give either --prompt or --token_ids"),
        (["--prompt=a", "--token_ids=1"], "give either --prompt or --token_ids"),
        (["--prompt=a"], "has no tokenizer: give --token_ids"),
        (["--token_ids=1,x"], "entry 1 is 'x', no token id"),
        (["--token_ids=1,125"], "--token_ids has token id 125 at position 1, but the model's vocabulary ends at 124"),
        (["--token_ids=-1"], "entry 0 is '-1', no token id"),
        (["--token_ids=1", "--max_new_tokens=0"], "--max_new_tokens=0 is out of range"),
        (["--token_ids=1", "--max_new_tokens=24"], "need 24 positions, the bundle's caches hold 23"),
        (["--token_ids=1", "--temperature=-1"], "temperature"),
        (["--token_ids=1", "--top_p=2"], "top_p"),
        (["--token_ids=1", "--device=vmvx"], "was compiled for llvm-cpu: export it with --target=vmvx"),
        (["--token_ids=1", "--device=gpus"], "--device=gpus: value should be one of"),
        (["--token_ids=1", "--stats=no/s.json"], "--stats=no/s.json: no file can be written there"),
        (["--token_ids=1", "--logits=."], "--logits=.: no file can be written there"),
        (["--bundle=."], "is not a bundle: it has no kernel_config.json"),
        (["--token_ids=1", "stray"], "unexpected arguments stray"),
    ],
)
def test_what_the_user_got_wrong(flags: Sequence[str], message: str, golden_bundle: Path, generating: Generate) -> None:
    refused(generating(golden_bundle, *flags), message)


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def _cut(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])


def _add_feature(config: dict[str, Any]) -> None:
    config["targets"]["llvm-cpu"]["cpu"]["features"].append("zzz_vectors")
    del config["seals"]["fields"]  # as in a bundle of an earlier version


_MARK, _VMFB = "kernel_config.json", "module.llvm-cpu.vmfb"
_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no_description": (lambda b: (b / _MARK).unlink(), "is not a bundle: it has no kernel_config.json"),
    "description_cut_off": (lambda b: _cut(b / _MARK, 0.5), "kernel_config.json: cannot be read"),
    "description_of_another_schema": (
        lambda b: _edit(b / _MARK, lambda c: c.update(schema=3)),
        "schema 3, this version reads schema 1 and 2: export the bundle again",
    ),
    "description_a_list": (lambda b: (b / _MARK).write_text("[]"), "schema 'list', this version reads schema 1"),
    "description_without_entry_points": (lambda b: _edit(b / _MARK, lambda c: c.pop("entry_points")), "damaged"),
    "description_with_a_list_of_targets": (
        lambda b: _edit(b / _MARK, lambda c: c.update(targets=[])),
        "damaged (targets is not an object): export the bundle again",
    ),
    "description_of_an_unknown_dtype": (
        lambda b: _edit(b / _MARK, lambda c: c["entry_points"][0]["args"][0].update(dtype="i33")),
        "damaged",
    ),
    "description_of_an_unknown_alias": (
        lambda b: _edit(b / _MARK, lambda c: c["entry_points"][0]["args"][-1].update(alias_result="x")),
        "damaged ('x')",
    ),
    "a_cpu_that_can_more": (
        lambda b: _edit(b / _MARK, _add_feature),
        "this CPU lacks zzz_vectors: export the bundle on this machine",
    ),
    "no_module": (
        lambda b: (b / _VMFB).unlink(),
        "bundle has lost module.llvm-cpu.vmfb, which kernel_config.json lists",
    ),
    "module_cut_off": (lambda b: _cut(b / _VMFB, 0.7), _VMFB),
    "module_empty": (lambda b: (b / _VMFB).write_bytes(b""), _VMFB),
    "no_weights": (
        lambda b: (b / "weights.irpa").unlink(),
        "bundle has lost weights.irpa, which kernel_config.json lists",
    ),
    "weights_cut_off": (lambda b: _cut(b / "weights.irpa", 0.7), "weights.irpa"),
    "weights_garbage": (lambda b: (b / "weights.irpa").write_bytes(b"x" * 5000), "weights.irpa"),
    "no_config": (lambda b: (b / "config.json").unlink(), "config.json"),
    "tokenizer_garbage": (lambda b: (b / "tokenizer.json").write_text("{}"), "tokenizer.json"),
}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_bundle(damage: str, golden_bundle: Path, tmp_path: Path, generating: Generate) -> None:
    harm, message = _DAMAGES[damage]
    shutil.copytree(golden_bundle, tmp_path / "bundle")
    harm(tmp_path / "bundle")
    refused(generating("bundle", "--token_ids=1", "--max_new_tokens=2"), message)


def test_several_prompts_are_answered_as_each_alone(
    demo: Path, several: Path, generating: Generate, tmp_path: Path
) -> None:
    flags = ("--max_new_tokens=9", "--temperature=0.8", "--seed=5", "--logits=l.npy", "--stats=s.json")
    texts = ("the tape", "a recorded operation and its shape", "x")
    alone, counts = [], []
    for text in texts:
        done = generating(demo, f"--prompt={text}", *flags)
        assert done == generating(several, f"--prompt={text}", *flags)
        alone.append((done.out, np.load(tmp_path / "l.npy")))
        counts.append(json.loads((tmp_path / "s.json").read_text()))
    together = generating(several, *(f"--prompt={text}" for text in texts), *flags)
    assert (together.code, together.err) == (0, "(answer 1, 2, 3 cut off by --max_new_tokens=9)\n")
    assert together.out == "".join(f"==> {i} <==\n{out}" for i, (out, _) in enumerate(alone, 1))
    logits = np.load(tmp_path / "l.npy")
    for (_, expected), actual in zip(alone, logits, strict=True):
        np.testing.assert_allclose(actual[: len(expected)], expected, rtol=1e-4, atol=1e-4)
        assert np.isnan(actual[len(expected) :]).all()
    stats = json.loads((tmp_path / "s.json").read_text())
    assert stats["prompt_tokens"] == sum(count["prompt_tokens"] for count in counts)
    assert stats["new_tokens"] == sum(count["new_tokens"] for count in counts)
    assert stats["bytes_copied_per_step"] == 3 * 4 * logits.shape[-1]
    assert stats["token_bytes_per_step"] == 3 * (4 + 4 + 4 + 4)  # an id, a row, a position and a count in
    waiting = generating(several, *["--prompt=x"] * 4, *flags)
    assert waiting.out == "".join(f"==> {i} <==\n{alone[2][0]}" for i in range(1, 5))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prompt=a", "--prompt=b", "--token_ids=1"], "give either --prompt or --token_ids"),
        (
            ["--token_ids=1", "--token_ids=1,2", "--max_new_tokens=96"],
            "a prompt (number 2) of 2 tokens and 96 new ones",
        ),
        (["--token_ids=1", "--token_ids=x"], "entry 0 is 'x', no token id"),
    ],
)
def test_what_is_wrong_with_several(flags: Sequence[str], message: str, several: Path, generating: Generate) -> None:
    refused(generating(several, *flags), message)


def test_a_bundle_of_one_sequence_answers_several_prompts(demo: Path, generating: Generate) -> None:
    more = ["--max_new_tokens=5", "--temperature=0.8", "--seed=3"]
    alone = [generating(demo, f"--prompt={prompt}", *more) for prompt in ("a", "it was", "a")]
    assert [done.code for done in alone] == [0, 0, 0]
    together = generating(demo, "--prompt=a", "--prompt=it was", "--prompt=a", *more)
    assert together.out == "".join(f"==> {number} <==\n{done.out}" for number, done in enumerate(alone, 1))


def test_an_answer_has_a_form(demo: Path, generating: Generate, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"enum": [1, 20]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    written = [
        generating(demo, "--prompt=it was", f"--json_schema={text}") for text in (json.dumps(schema), "schema.json")
    ]
    assert written[0] == written[1]
    assert json.loads(written[0].out)["n"] in (1, 20)
    assert generating(demo, "--prompt=it was", "--regex=[ab]{3}").out.strip("ab") == "\n"
    for flags, message in (
        (["--regex=a", "--json_schema={}"], "give either --json_schema or --regex"),
        (["--json_schema=none.json"], "--json_schema=none.json: cannot be read"),
        (["--json_schema={"], "--json_schema={: no JSON"),
        (['--json_schema={"type": "strange"}'], "strange"),
    ):
        refused(generating(demo, "--prompt=a", *flags), message)


def test_a_bundle_for_other_uses(tmp_path: Path, generating: Generate) -> None:
    case = CASES["llama_gqa"]
    forward = export_case(case, tmp_path / "f", entry_points=("forward",), sequence=3, num_layers=1)
    two = export_case(case, tmp_path / "t", batch=2, sequence=3, max_sequence=4, num_layers=1)
    refused(generating(forward, "--token_ids=1"), "generation needs prefill and decode: export with --entry_points")
    refused(generating(two, "--token_ids=1"), "was exported with --batch=2, and generation takes one sequence")
