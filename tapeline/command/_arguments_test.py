"""Arguments as users write them, for every flag of every command."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from absl import flags

from tapeline.command import COMMANDS, load_command, main
from tapeline.command._arguments import TEXTS, variable_of
from tapeline.command._program import parse_command

_FLAGS = [(command, name) for command in COMMANDS for name in load_command(command).FLAGS]


def _value_of(flag: flags.Flag[Any]) -> str:
    """Returns a value that a flag takes, and that is not its default."""
    choices = getattr(flag.parser, "enum_values", None)
    if choices:
        return next(choice for choice in choices if choice != flag.default)
    return "77" if isinstance(flag.parser, flags.FloatParser | flags.IntegerParser) else "a value"


def _parsed(command: str, *words: str) -> Mapping[str, Any]:
    """Returns the values of flags after parsing; the flags that a command needs are given too."""
    values = load_command(command).FLAGS
    needed = {"run": ("bundle", "output_dir"), "embed": ("bundle",), "rerank": ("bundle", "query")}
    needed |= dict.fromkeys(("classify", "tag", "fill"), ("bundle",)) | {"answer": ("bundle", "question")}
    needed["convert"] = ("model", "output")
    needed |= {"transcribe": ("bundle", "audio"), "compare": ("actual",), "train": ("model", "data", "output")}
    needed["make-checkpoint"] = ("output",)
    operands = 0 if words[:1] == () or words[0].startswith("-") else len(words)
    taken = [name for names in getattr(load_command(command), "OPERANDS", ())[:operands] for name in names]
    typed = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in words}
    named = [f"--{name}=x" for name in needed.get(command, ()) if name not in {*taken, *typed}]
    assert parse_command(command, [*named, *words]) is None
    return {name: values[name].value for name in values}


@pytest.mark.parametrize(("command", "name"), _FLAGS)
def test_every_flag_takes_hyphens_and_both_forms_of_values(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = load_command(command).FLAGS[name]
    hyphens = name.replace("_", "-")
    if flag.boolean:
        off = [f"--no{name}", f"--no-{hyphens}", f"--no_{name}", f"--{name}=false", f"--{hyphens}=no"]
        on = [f"--{name}", f"--{hyphens}", f"--{hyphens}=true", f"--{name}=on"]
        for words, value in itertools.chain(((word, False) for word in off), ((word, True) for word in on)):
            assert _parsed(command, words)[name] is value
    else:
        value = _value_of(flag)
        written = [[f"--{word}={value}"] for word in (name, hyphens)] + [[f"--{hyphens}", value]]
        parsed = [_parsed(command, *words)[name] for words in written]
        assert parsed[0] == parsed[1] == parsed[2] != flag.default
        assert main([command, f"--{hyphens}"]) == 2
        assert f"--{hyphens}: expected a value" in capsys.readouterr().err
    typo = f"--{name[:-1]}{name[-1]}z"
    assert main([command, typo, "x"]) == 2
    assert f"error: unknown flag {typo}; did you mean --" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "name"), _FLAGS)
def test_an_empty_value_is_an_error_but_of_texts(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    flag = load_command(command).FLAGS[name]
    if name in TEXTS or (flag.default in ("", []) and not isinstance(flag, flags.MultiFlag)):
        assert _parsed(command, f"--{name}=")[name] in ("", [], [""])
        return
    for words in ([f"--{name}="], [f"--{name}= "], *([] if flag.boolean else [[f"--{name}", ""]])):
        assert main([command, *words]) == 2
        assert f"the value is empty: give one, or leave --{name} out" in capsys.readouterr().err


def test_texts_are_flags() -> None:
    assert {name for _, name in _FLAGS} >= TEXTS


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["export", "--dtype=fp16"], "dtype", "f16"),
        (["export", "--dtype=half"], "dtype", "f16"),
        (["export", "--dtype", "float16"], "dtype", "f16"),
        (["export", "--dtype=BFloat16"], "dtype", "bf16"),
        (["export", "--dtype=float32"], "dtype", "f32"),
        (["chat", "--dtype=bfloat16"], "dtype", "bf16"),
        (["serve", "--dtype=half"], "dtype", "f16"),
        (["train", "--dtype=bfloat16"], "dtype", "bf16"),
        (["make-checkpoint", "--dtype=float32"], "dtype", "f32"),
        (["export", "--positions=per-row"], "positions", "per_row"),
        (["chat", "--device=local_task"], "device", "local-task"),
        (["chat", "--device=CUDA"], "device", "cuda"),
        (["doctor", "--json"], "format", "json"),
        (["transcribe", "--json"], "format", "json"),
        (["tune", "--json"], "format", "json"),
        (["generate", "--prompt=-7 degrees"], "prompt", ["-7 degrees"]),
        (["generate", "--prompt", "--dashes"], "prompt", ["--dashes"]),
        (["generate", "--seed", "-1"], "seed", -1),
        (["chat", "demo", "--top-k=3"], "model", "demo"),
        (["chat", "--top-k", "3", "demo"], "model", "demo"),
        (["chat", "--ignore-eos", "demo"], "model", "demo"),
        (["chat", "--", "demo"], "model", "demo"),
        (["export", "some/model.gguf"], "model", "some/model.gguf"),
        (["train", "demo"], "model", "demo"),
        (["run", "there"], "bundle", "there"),
        (["transcribe", "there", "a.wav"], "audio", "a.wav"),
        (["compare", "one", "other"], "reference", "other"),
        (["tune", "--op=x", "explain"], "action", "explain"),
        (["compare", "--found=one"], "actual", "one"),
        (["serve", "--tick-tokens=7"], "max_batched_tokens", 7),
        (["serve", "--stall", "0.5"], "target_itl", 0.5),
        (["serve", "--prefix_store=1MiB"], "prefix_cache_memory", "1MiB"),
    ],
)
def test_what_arguments_mean(words: list[str], name: str, value: Any) -> None:
    assert _parsed(*words)[name] == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chat", "--max-new=3"], "unknown flag --max-new; did you mean --max_new_tokens?"),
        (["chat", "--max-tokens=3"], "unknown flag --max-tokens; did you mean --max_new_tokens"),
        (["serve", "-p", "80"], "unknown flag -p"),
        (["chat", "--no-chat=1"], "--no-chat=1: --no-chat takes no value"),
        (["doctor", "--json=1"], "--json takes no value"),
        (["serve", "--json"], "unknown flag --json"),
        (
            ["embed", "--model=a"],
            "unknown flag --model: name a bundle, which `tapeline export MODEL` writes, with --bundle=DIR",
        ),
        (["chat", "--no-prompt"], "unknown flag --no-prompt"),
        (["chat", "--prompt", "--seed=3"], "--prompt: expected a value, found the flag --seed=3"),
        (["chat", "--seed=many"], "--seed=many: expected a whole number"),
        (["chat", "--top_k=1.5"], "--top_k=1.5: expected a whole number"),
        (["chat", "--temperature=hot"], "--temperature=hot: expected a number"),
        (["inspect", "--hashes=maybe"], "--hashes=maybe: expected true or false"),
        (["export", "--verify=pars"], "--verify=pars: value should be one of <auto|"),
        (["export", "--verify=pars"], "did you mean 'parse'?"),
        (["export", "a", "--model=b"], "unexpected arguments a: --model=b is given too: leave one of them out"),
        (["chat", "a", "--bundle=b"], "unexpected arguments a: --bundle=b is given too"),
        (
            ["embed", "a", "--bundle=b"],
            "--bundle=b is given too: leave one of them out; give a text with --text='...'",
        ),
        (["transcribe", "--bundle=b", "a.wav", "b.wav"], "unexpected arguments b.wav"),
        (["doctor", "--jsn"], "unknown flag --jsn; did you mean --json?"),
        (["run", "--output-dir=x"], "give --bundle: "),
        (["run", "a", "b", "--output-dir=x"], "unexpected arguments b"),
        (["cache", "clean"], "--action=clean: value should be one of <list|clear>; did you mean 'clear'?"),
        (["explain", "InputErorr"], "in all); did you mean 'InputError'"),
        (["export", "--flagfile=nowhere"], "nowhere"),
    ],
)
def test_what_is_wrong_is_one_error(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    streams = capsys.readouterr()
    assert message in streams.err
    assert streams.err.count("error: ") == 1
    assert (streams.out, "Traceback" in streams.err) == ("", False)


def test_an_operand_is_a_bundle_or_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel_config.json").touch()
    for command in ("inspect", "chat", "generate"):
        assert _parsed(command, "one")["bundle"] == "one"
        assert _parsed(command, "model.gguf")["model"] == "model.gguf"
    assert _parsed("serve", "one", "other")["bundle"] == ["one", "other"]
    assert _parsed("serve", "one", "--bundle=other")["bundle"] == ["one", "other"]


def test_flags_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("--max-new-tokens=5\n--ignore-eos\n")
    values = _parsed("generate", f"--flagfile={tmp_path / 'flags'}", "demo")
    assert (values["max_new_tokens"], values["ignore_eos"], values["model"]) == (5, True, "demo")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in load_command("serve").FLAGS:
        monkeypatch.delenv(variable_of(name), raising=False)
    yield
    monkeypatch.undo()
    assert parse_command("serve", []) is None


@pytest.mark.parametrize("name", list(load_command("serve").FLAGS))
def test_every_flag_of_serve_has_a_variable(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = load_command("serve").FLAGS[name]
    text = "yes" if flag.boolean else _value_of(flag)
    monkeypatch.setenv(variable_of(name), text)
    from_variable = _parsed("serve")[name]
    assert from_variable == _parsed("serve", f"--{name}={text}")[name] != flag.default
    assert _parsed("generate" if name in load_command("generate").FLAGS else "export") is not None
    if not isinstance(flag.parser, flags.FloatParser | flags.IntegerParser | flags.BooleanParser | flags.EnumParser):
        return
    monkeypatch.setenv(variable_of(name), "wrong")
    assert main(["serve"]) == 2
    assert f"error: {variable_of(name)}=wrong: " in capsys.readouterr().err


def test_the_command_line_outdoes_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAPELINE_PORT", "81")
    monkeypatch.setenv("TAPELINE_MODEL", "demo")
    monkeypatch.setenv("TAPELINE_HOST", "")
    values = _parsed("serve", "--max-waiting=3")
    assert (values["port"], values["model"], values["host"]) == (81, "demo", "127.0.0.1")
    monkeypatch.setenv("TAPELINE_STALL", "0.5")
    assert _parsed("serve")["target_itl"] == 0.5
    assert _parsed("serve", "--target_itl=0.7")["target_itl"] == 0.7
    assert _parsed("serve", "--port=82")["port"] == 82
    assert _parsed("serve", "other")["model"] == "other"
    values = _parsed("serve", f"--bundle={tmp_path}")
    assert (values["model"], values["bundle"]) == (None, [str(tmp_path)])
    monkeypatch.delenv("TAPELINE_MODEL")
    monkeypatch.setenv("TAPELINE_BUNDLE", "one:other")
    assert _parsed("serve")["bundle"] == ["one", "other"]
    assert _parsed("serve", "demo")["bundle"] == []
    assert _parsed("generate", "demo")["bundle"] is None  # the variables are the server's


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TAPELINE_DRAFT_TOKENS": "2"}, "error: TAPELINE_DRAFT_TOKENS goes with --speculate"),
        ({"TAPELINE_SLOTS": "2", "TAPELINE_BUNDLE": "DEMO"}, "error: TAPELINE_SLOTS goes with --model"),
        ({"TAPELINE_BUNDLE": "nowhere"}, "nowhere"),
        ({"TAPELINE_API_KEY_FILE": "nowhere"}, "error: TAPELINE_API_KEY_FILE=nowhere: cannot be read"),
        ({"TAPELINE_CHAT_TEMPLATE": "nowhere"}, "error: TAPELINE_CHAT_TEMPLATE=nowhere: cannot be read"),
        ({"TAPELINE_PREFIX_CACHE_MEMORY": "much"}, "error: TAPELINE_PREFIX_CACHE_MEMORY=much"),
        ({"TAPELINE_STALL_SECONDS": "0"}, "error: TAPELINE_STALL_SECONDS=0.0 is out of range"),
    ],
)
def test_errors_name_the_variable(
    variables: Mapping[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("DEMO", str(tmp_path)))
    assert main(["serve"]) == 2
    assert message in capsys.readouterr().err
