"""Patterns of names against Python's own ``re``, and patterns that take it hours."""

import random
import re
import warnings

import pytest

from lang_core import ConfigError
from transformer_core.checkpoints._patterns import LONGEST_NAME, NamePatterns

NAMES = (
    "lm_head", "model.embed_tokens", "model.layers.0.self_attn.q_proj", "model.layers.11.self_attn.o_proj",
    "model.layers.3.mlp.gate", "model.layers.3.mlp.gate_proj", "model.layers.3.mlp.experts.17.down_proj",
    "visual.blocks.0.attn.qkv", "vision_tower.x-y", "a", "", "aaaa", "A.B", "model.layers.12.mlp.shared_expert_gate",
)  # fmt: skip
# Of llm-compressor's recipes and published checkpoints, and of PEFT's documentation.
USUAL = (
    ".*lm_head", r".*self_attn\.(q|k|v|o)_proj$", ".*mlp.gate$", ".*mlp.shared_expert_gate$", "visual.*",
    r"vision_tower.*", r"model\.layers\.[0-9]+\.mlp\.experts\.\d+\.(gate|up|down)_proj", r".*block_sparse_moe\.gate",
    r".*\.mlp\.(gate_up|gate|up|down)_proj.*", r"^(?!.*(lm_head|mlp\.gate)).*", r"layers\.0\..*q_proj", "down_proj",
    r"(?:model\.)?layers\.(?:[0-9]|1[0-1])\..*", r".*(?<!shared_expert_)gate$", r"re:.*",
)  # fmt: skip
_ATOMS = (
    "a", "b", ".", r"\.", r"\d", r"\w", r"\W", r"\s", r"\b", r"\B", "^", "$", r"\A", r"\Z", "[a-z]", "[^.]", "[]a]",
    "[[:alpha:]]", "[^\\d.]", "{", "}", "]", r"\_", r"\-", "gate", "q_proj", "layers", "0", r"\1", r"\12", r"\07",
    r"\x61", r"\u0061", "(?i:A)", "(?i)", "(?=a)", "(?!a)", "(?<=a)", "(?<!b)", "(?:)", "()", "(?P<n>a)", "(?P=n)",
    "(?#c)", "(?>a)", "é", "Z", r"\Q", r"\pL", "&&", "--", "|", "model",
)  # fmt: skip
_AFTER = (
    "",
    "",
    "",
    "",
    "*",
    "+",
    "?",
    "*?",
    "+?",
    "{2}",
    "{,2}",
    "{1,3}",
    "{2,}",
    "{2}?",
    "++",
    "{x}",
    "**",
    "{1001}",
)


def drawn(random_: random.Random, depth: int = 2) -> str:
    parts = []
    for _ in range(random_.randint(1, 4)):
        atom = random_.choice(_ATOMS)
        if depth and random_.random() < 0.3:
            atom = f"({random_.choice(('', '?:'))}{drawn(random_, depth - 1)}|{drawn(random_, depth - 1)})"
        parts.append(atom + random_.choice(_AFTER))
    return "".join(parts)


def found(patterns: list[str], name: str, before: str | None) -> int | None:
    """Returns the number of the first pattern that ``re`` matches."""
    for number, pattern in enumerate(patterns):
        match = re.match(pattern, name) if before is None else re.fullmatch(f"{before}({pattern})", name)
        if match is not None:
            return number
    return None


@pytest.mark.parametrize("before", [None, r"(.*\.)?"])
def test_usual_patterns_match_what_re_matches(before: str | None) -> None:
    for pattern in USUAL:
        compiled = NamePatterns([pattern], "config.json", before)
        assert [compiled.first(name) for name in NAMES] == [found([pattern], name, before) for name in NAMES], pattern
    every = NamePatterns(USUAL, "config.json", before)
    assert [every.first(name) for name in NAMES] == [found([*USUAL], name, before) for name in NAMES]


@pytest.mark.parametrize("before", [None, r"(.*\.)?"])
def test_drawn_patterns_match_what_re_matches_or_are_refused(before: str | None) -> None:
    random_, refused, matched = random.Random(44), 0, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of sets such as [[a]
        for _ in range(4000):
            pattern = drawn(random_)
            try:
                compiled = NamePatterns([pattern], "config.json", before)
            except ConfigError:
                refused += 1
                continue
            for name in NAMES:
                expected = found([pattern], name, before)
                matched += expected is not None
                assert compiled.first(name) == expected, (pattern, name)
    assert refused < 3500
    assert matched > 500


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a*)*b", "((a|a)*)*c", "(?:a?){40}a{40}", "(a|aa)+$", "(.*)*x", r"(\w+\s?)*!", "(x+x+)+y",
        "((a{1,90}){1,90}){1,90}b", "a*a*a*a*a*a*a*a*a*b", "(a|a)" * 40 + "b", "a?" * 100 + "a" * 100 + "b",
    ],
)  # fmt: skip
def test_patterns_that_take_re_hours(pattern: str) -> None:
    """None of these ends with ``re``; RE2 takes microseconds, and what it cannot bound is refused."""
    name = "a" * LONGEST_NAME
    for before in (None, r"(.*\.)?"):
        try:
            compiled = NamePatterns([pattern] * 20, "config.json", before)
        except ConfigError:  # test_what_is_refused has the message
            continue
        assert compiled.first(name) in (None, 0)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", r"config.json: '\(' is no regular expression"),
        ("(" * 3000 + ")" * 3000, "is no regular expression"),
        ("a" * 10_001, "a pattern has 10001 letters, expected 10000 at most"),
        ("((a+)+)+(?=b)", "could take very long to match"),
        (r"(?=(a+)+\1)", "could take very long to match"),
        ("(?!x)" + "(a|a)" * 30, "could take very long to match"),
        ("(?!x)" + "a?" * 30, "could take very long to match"),
        ("(?=.*a.*b.*c.*d)", "could take very long to match"),
        ("(é+)+", "could take very long to match"),
    ],
)
def test_what_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NamePatterns([pattern], "config.json")


def test_names_that_are_not_matched() -> None:
    patterns = NamePatterns([r"\w+"], "config.json")
    for name in ("é", "a\n", "a" * (LONGEST_NAME + 1)):
        with pytest.raises(ConfigError, match="printable ASCII letters; found the module"):
            patterns.first(name)
    assert NamePatterns([], "config.json").first("é\n") is None


def test_a_table_of_patterns_is_bounded() -> None:
    with pytest.raises(ConfigError, match="has 20001 patterns, expected 20000 at most"):
        NamePatterns(["a"] * 20_001, "config.json")
    large = NamePatterns(["(.{1,30}){1,30}b"] * 30, "config.json")
    assert large.first("a" * 50) is None
