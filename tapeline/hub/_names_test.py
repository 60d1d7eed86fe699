from pathlib import Path

import pytest

from lang_core import InputError
from tapeline.hub import HubError, HubName, parse_hub_name, resolve_adapter, resolve_model


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/name", HubName("org/name", "main", None)),
        ("org/name@v1.0", HubName("org/name", "v1.0", None)),
        ("org/name@refs/pr/1:Q4_K_M", HubName("org/name", "refs/pr/1", "Q4_K_M")),
        ("org/na-me_1.5:part/model-Q8_0.gguf", HubName("org/na-me_1.5", "main", "part/model-Q8_0.gguf")),
    ],
)
def test_names_of_the_hub_have_parts(text: str, name: HubName) -> None:
    assert parse_hub_name(text) == name


@pytest.mark.parametrize(
    "text",
    ["", "demo", "gpt2", "a/b/c", "./a/b", "/a/b", "../b", "a/../b", "a/model.gguf", "a/x.safetensors", "a/b@",
     "a/b@../x", "a/b@x/../y", "a/b@/x", "a/b:", "a b/c", "a/b@x y", "a/-b", "a/b\n"],
)  # fmt: skip
def test_other_texts_are_paths(text: str) -> None:
    assert parse_hub_name(text) is None


def test_a_local_directory_of_that_name_wins(tmp_path: Path) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    with resolve_model("org/name", tmp_path / "org" / "name") as location:
        assert (location.path, location.facts) == (tmp_path / "org" / "name", {})
    assert resolve_adapter("org/name", tmp_path / "org" / "name").path == tmp_path / "org" / "name"


def test_what_is_neither_path_nor_name_says_both_forms(tmp_path: Path) -> None:
    with (
        pytest.raises(
            InputError, match=r"model=a/b/c: there is no directory or file .*/b/c: give .*, or org/name\[@rev"
        ),
        resolve_model("a/b/c", tmp_path / "a/b/c"),
    ):
        pass
    with pytest.raises(InputError, match=r"adapter=x: there is no directory or file .*: give a directory of PEFT"):
        resolve_adapter("x", tmp_path / "x")


def test_errors_of_the_hub_are_errors_of_the_input() -> None:
    assert issubclass(HubError, InputError)
