import re
from pathlib import Path

import pytest

from lang_core import ConfigError, bf16, f32
from transformer_core.flow._profile import PRESETS, CompileProfile, Memory, Rows
from transformer_core.flow._profile_file import load_profiles


def test_presets_differ_in_what_they_are_for():
    prefill = CompileProfile.preset("prefill", sequence=8, max_sequence=32)
    decode = CompileProfile.preset("decode", max_sequence=32, dtype="bf16")
    assert (prefill.memory, prefill.rows, prefill.capacity) == (Memory.CACHES, Rows.LAST, 32)
    assert (decode.sequence, decode.dtype) == (1, bf16)
    score = CompileProfile.preset("verify", sequence=4, max_sequence=32)
    assert (score.memory, score.rows, score.padded) == (Memory.CACHES, Rows.ALL, True)
    encoder = CompileProfile.preset("encoder", sequence=5)
    assert (encoder.causal, encoder.rows, encoder.memory, encoder.capacity) == (False, Rows.ALL, Memory.NONE, 5)
    assert CompileProfile.preset("training", sequence=5).causal
    assert prefill.sizes == {"B": 1, "T": 8, "S": 32}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "bf17"}, r"dtype: unknown dtype 'bf17'.*did you mean 'bf16'"),
        ({"dtype": "i32"}, "dtype: expected f32, bf16, f16 or f64, for activations are fractions; found 'i32'"),
        ({"batch": 0}, "batch: expected an integer of 1 or more; found 0"),
        ({"batch": True}, "batch: expected an integer of 1 or more; found True"),
        ({"sequence": "8"}, "sequence: expected an integer of 1 or more; found '8'"),
        ({"max_sequence": 2.0}, "max_sequence: expected an integer of 1 or more; found 2.0"),
        ({"max_sequence": 7, "sequence": 8}, r"sequence: expected at most max_sequence \(7\); found 8"),
        ({"memory": "cache"}, "memory: expected one of none, taps, caches, bindings; found 'cache'; did you mean 'cac"),
        (
            {"positions": "per-row"},
            "positions: expected one of shared, per_row; found 'per-row'; did you mean 'per_row'",
        ),
        ({"rows": 1}, "rows: expected one of all, last; found 1"),
        ({"causal": 1}, "causal: expected true or false; found 1"),
        ({"name": "a b"}, "name: expected the name of a function; found 'a b'"),
        ({"outputs": "hidden"}, "outputs: expected names, each once; found 'hidden'"),
        ({"outputs": ["a", "a"]}, "outputs: expected names, each once"),
        ({"padded": 0}, "padded: expected true or false; found 0"),
        ({"next_ids": None}, "next_ids: expected true or false; found None"),
        ({"ring_tokens": 0}, "ring_tokens: expected an integer of 1 or more; found 0"),
        ({"ring_tokens": 3}, r"ring_tokens: expected at least sequence \(4\); found 3"),
        ({"page_tokens": 0}, "page_tokens: expected an integer of 1 or more; found 0"),
        ({"page_tokens": 16}, "cache_rows: expected the number of pages, with page_tokens; found None"),
        (
            {"page_tokens": 16, "max_sequence": 40, "cache_rows": 9},
            r"page_tokens: expected a part of max_sequence \(40\).*found 16: choose max_sequence=48",
        ),
        (
            {"page_tokens": 48, "max_sequence": 48, "cache_rows": 9},
            r"page_tokens: expected a part of max_sequence \(48\).*found 48: choose max_sequence=96",
        ),
        (
            {"page_tokens": 16, "max_sequence": 48, "cache_rows": 3},
            "cache_rows: expected at least 4 pages: a sequence's, and one that is nobody's; found 3",
        ),
        ({"sequnce": 3}, "profile prefill: unknown key 'sequnce'; did you mean 'sequence'"),
    ],
)
def test_nothing_falls_back(changes: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        CompileProfile.preset("prefill", **{"sequence": 4, **changes})


def test_what_a_preset_leaves_open_must_be_given():
    with pytest.raises(ConfigError, match="'sequence' is missing"):
        CompileProfile.preset("prefill")
    with pytest.raises(ConfigError, match=r"preset 'decoder' is unknown; available: .*; did you mean 'decode'"):
        CompileProfile.preset("decoder")


def test_a_file_of_profiles(tmp_path: Path):
    path = tmp_path / "profiles.toml"
    path.write_text(
        '[prefill]\nsequence = 16\nmax_sequence = 64\ndtype = "bf16"\n\n[embed]\npreset = "encoder"\nsequence = 9\n'
        'outputs = ["hidden"]\n[training]\nsequence = 3\n'
    )
    prefill, embed, training = load_profiles(path)
    assert prefill == CompileProfile.preset("prefill", sequence=16, max_sequence=64, dtype=bf16)
    assert (embed.name, embed.causal, embed.outputs, embed.dtype) == ("embed", False, ("hidden",), f32)
    assert training == CompileProfile(name=str(PRESETS["training"]["name"]), sequence=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[prefill]\nbatch = 2\nsequnce = 3\n", ":3: [prefill]: profile prefill: unknown key 'sequnce'; did you mean"),
        ('[decode]\n\ndtype = "bf61"\n', ":3: [decode]: dtype: unknown dtype 'bf61'"),
        ("[decode]\nsequence = 1\n[prefill]\nsequence = 0\n", ":4: [prefill]: sequence: expected an integer of 1"),
        ("[prefill]\nbatch = 2\n", ":1: [prefill]: profile prefill: 'sequence' is missing"),
        ("[decode]\nbatch = 2\n[prefill]\n# how many?\n", ":3: [prefill]: profile prefill: 'sequence' is missing"),
        (
            "[chat]\nsequence = 2\n",
            ":1: [chat]: expected a key 'preset', one of prefill, decode, verify, encoder, training; found none",
        ),
        (
            "[chat]\npreset = 3\n",
            ":2: [chat]: expected a key 'preset', one of prefill, decode, verify, encoder, training; found 3",
        ),
        ('[chat]\npreset = "decoder"\n', ":2: [chat]: preset 'decoder' is unknown"),
        ("sequence = 2\n", ":1: key 'sequence' stands in no table"),
        ("", ": expected a table per profile, such as [prefill]; found none"),
        ("[prefill\n", ": is no TOML: Expected ']' at the end of a table declaration (at line 1"),
    ],
)
def test_a_wrong_file_says_the_line(tmp_path: Path, text: str, message: str):
    path = tmp_path / "profiles.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"profiles.toml{message}")):
        load_profiles(path)


def test_a_file_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"absent\.toml: no such file"):
        load_profiles(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_profiles(tmp_path)
