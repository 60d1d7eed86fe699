"""Tags in both lowerings: no trace unless selected; where selected the same text, and all of them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_dag import GraphExecutionContext
from compile_hlo import LoweredModule, lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, InputError, TagSelection
from tests.streaming import _programs
from transformer_core.models import DecoderConfig, DecoderLM, entry_points

SPEC = _programs.SPEC


def lowered(points: Any, tags: list[str] | None = None, **options: Any) -> tuple[str, LoweredModule]:
    pieces: list[str] = []
    selection = None if tags is None else TagSelection(tags)
    module = lower_module(points, pieces.append, ExternalParameters(), tags=selection, **options)
    return "".join(pieces), module


@settings(max_examples=80, deadline=None)
@given(_programs.programs(), st.lists(st.integers(0, 999), min_size=1, max_size=4), st.booleans())
def test_streamed_is_buffered(steps: Any, outputs: list[int], block_functions: bool) -> None:
    def fn(ctx: Any, *inputs: Any) -> Any:
        return program.fn(ctx, ctx.tag(inputs[0], "always"), *inputs[1:])

    program = _programs.entry_point(steps, outputs)
    point = EntryPoint("main", fn, program.arguments)
    buffered, one = lowered([point], ["*"], streaming=False, block_functions=block_functions)
    streamed, other = lowered([point], ["*"], streaming=True, block_functions=block_functions)
    assert streamed == buffered
    assert one == other
    text = repr(steps)
    asked = text.count("'tag'") + text.count("'tagged_while'")
    assert len(one.functions[0].tags) == asked + 1
    if not block_functions:  # alike ones are written once
        assert streamed.count("flow.tensor.trace") == asked + 1


def test_a_tag_keeps_what_it_shows_and_is_not_merged_with_another() -> None:
    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        with ctx.block("one"):
            shown, dead = ctx.ops.sin(x), ctx.ops.cos(x)
        with ctx.block("two"):
            ctx.tag(ctx.ops.exp(shown), "a")
            ctx.tag(ctx.ops.exp(shown), "b")
        del dead
        return {"y": x}

    for streaming in (False, True):
        text, module = lowered([EntryPoint("main", fn, (Argument("x", SPEC),))], ["*"], streaming=streaming)
        assert [text.count(op) for op in ("sine", "cosine", "exponential", "trace")] == [1, 0, 1, 2]
        assert [tag.name for tag in module.functions[0].tags] == ["a", "b"]
        assert module.functions[0].nodes_pruned == 1


def _decoder(**changes: Any) -> DecoderLM:
    values = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 11,
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64,
    }
    return DecoderLM(DecoderConfig.from_hf(values | changes))


_POINTS = entry_points(_decoder(), names=("prefill", "decode", "forward"), sequence=6, max_sequence=16)
_LAYER = ("input", "self_attn.q", "self_attn.k", "self_attn.v", "self_attn.output", "mlp.output", "output")


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("block_functions", [False, True])
def test_a_model_that_sets_tags_has_the_text_of_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, streaming: bool, block_functions: bool
) -> None:
    options: dict[str, Any] = {"streaming": streaming, "block_functions": block_functions}
    with_tags = lowered(_POINTS, **options)
    monkeypatch.setattr(GraphExecutionContext, "tag", lambda self, x, name, detail=False: x)
    assert lowered(_POINTS, **options) == with_tags


@pytest.mark.parametrize("streaming", [False, True])
def test_the_tags_of_a_decoder(streaming: bool) -> None:
    text, module = lowered(_POINTS, ["*"], streaming=streaming, block_functions=False)
    expected = [f"model.layers.{i}.{name}" for i in range(3) for name in _LAYER]
    for function in module.functions:
        assert [tag.name for tag in function.tags] == [*expected, "model.norm.output", "logits"]
    q = module.functions[0].tags[1]
    assert (q.module_path, q.op, q.spec.shape) == ("model.layers.0.self_attn", "add", (1, 1, 2, 6, 6))
    assert "transformer_core/layers/_rope.py:" in q.line
    assert text.count("flow.tensor.trace") == 3 * (3 * len(_LAYER) + 2)


def test_scores_are_there_for_who_asks_by_name() -> None:
    _, module = lowered(_POINTS[:1], ["model.layers.1.self_attn.scores"])
    (tag,) = module.functions[0].tags
    assert tag.spec.shape == (1, 1, 2, 6, 16)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_glob_that_matches_nothing(streaming: bool) -> None:
    with pytest.raises(InputError, match=r"tags '\*\.logit': no tensor .*; did you mean 'logits'\?; its tags are "):
        lowered(_POINTS, ["*.q", "*.logit"], streaming=streaming)
    lowered(_POINTS[:2], ["model.norm.output"], streaming=streaming)
