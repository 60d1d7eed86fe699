import doctest
from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, InputError, Module, OpError, TagSelection, Tensor, _tags, tag_name


def test_the_examples() -> None:
    result = doctest.testmod(_tags)
    assert (bool(result.attempted), result.failed) == (True, 0)


@pytest.mark.parametrize(
    ("glob", "name", "chosen"),
    [
        ("*", "model.layers.0.input", True),
        ("*.q", "model.layers.0.self_attn.q", True),
        ("*.q", "model.layers.0.self_attn.qq", False),
        ("model.layers.1.*", "model.layers.11.input", False),
        ("model.layers.[2-4].input", "model.layers.3.input", True),
        ("logits", "logits", True),
        ("Logits", "logits", False),
    ],
)
def test_globs(glob: str, name: str, chosen: bool) -> None:
    assert TagSelection([glob]).selects(name) is chosen


@pytest.mark.parametrize(
    ("glob", "chosen"), [("*", False), ("*s", False), ("*.scores", True), ("a.scores", True), ("a.*", False)]
)
def test_a_detail_is_chosen_by_its_own_name_alone(glob: str, chosen: bool) -> None:
    assert TagSelection([glob]).selects("a.scores", detail=True) is chosen


def met(globs: list[str]) -> TagSelection:
    selection = TagSelection(globs)
    for layer in range(3):
        for name in ("input", "self_attn.q", "mlp.output"):
            selection.selects(f"model.layers.{layer}.{name}")
    selection.selects("logits")
    return selection


def test_a_glob_that_chose_something_passes() -> None:
    met(["*.2.input", "logits"]).check()


@pytest.mark.parametrize(
    ("glob", "near"),
    [
        ("logit", "; did you mean 'logits'"),
        ("model.layers.7.mlp.output", r"; did you mean 'model\.layers\.\*\.mlp\.output'"),
        ("*.qq", r"; did you mean '\*\.q'"),
        ("zzz", ""),
    ],
)
def test_a_glob_that_chose_nothing_lists_near_names(glob: str, near: str) -> None:
    listed = r"; its tags are model\.layers\.\*\.input, model\.layers\.\*\.self_attn\.q, .*, logits$"
    with pytest.raises(InputError, match=rf"tags '.*': no tensor of the model has such a name{near}.*{listed}"):
        met(["logits", glob]).check()


def test_a_model_without_tags_and_one_with_many() -> None:
    with pytest.raises(InputError, match=r"tags '\*': no tensor of the model has such a name; its tags are none$"):
        TagSelection(["*"]).check()
    selection = TagSelection(["zzz"])
    for number in range(30):
        selection.selects(f"tag{number}")
    with pytest.raises(InputError, match=r"tag23 and 6 more$"):
        selection.check()


class Model(Module):
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]

    def forward(self, ctx: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(ctx, x)
        return ctx.tag(x, "end")


class Layer(Module):
    def forward(self, ctx: Any, x: Tensor) -> Tensor:
        return ctx.tag(ctx.ops.mul(x, 2.0), "doubled", detail=True)


def test_an_eager_context_hands_tags_to_its_sink() -> None:
    shown: list[tuple[str, list[float]]] = []
    ctx = EagerExecutionContext(tag_sink=lambda name, tensor: shown.append((name, tensor.numpy().tolist())))
    Model()(ctx, ctx.constant([1.0, 3.0]))
    assert shown == [("layers.0.doubled", [2, 6]), ("layers.1.doubled", [4, 12]), ("end", [4, 12])]


def test_a_tag_gives_back_the_very_tensor() -> None:
    for ctx in (EagerExecutionContext(), EagerExecutionContext(tag_sink=lambda name, tensor: None)):
        x = ctx.constant([1.0])
        assert ctx.tag(x, "x") is x
        array = np.ones(2, np.float32)
        assert ctx.tag(array, "array") is array  # pyright: ignore[reportArgumentType] - as ops take arrays
    with pytest.raises(OpError, match="'text' of type str is not a tensor"):
        EagerExecutionContext(tag_sink=print).tag("text", "x")  # pyright: ignore[reportArgumentType]


def test_names() -> None:
    assert tag_name("a.b", "c") == "a.b.c"
