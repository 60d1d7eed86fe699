from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, ExecutionContext, OpError, Ops


class Recording(EagerExecutionContext):
    """Context that overrides what a recording context overrides."""

    @property
    def isRecording(self) -> bool:
        return True


def test_a_context_does_not_record_by_default() -> None:
    assert ExecutionContext.isRecording.fget is not None
    assert EagerExecutionContext.isRecording is ExecutionContext.isRecording  # inherited, not repeated
    ctx = EagerExecutionContext()
    assert ctx.isRecording is False
    assert ctx.is_recording is False


def test_overriding_one_spelling_overrides_both() -> None:
    ctx = Recording()
    assert ctx.isRecording is True
    assert ctx.is_recording is True


def test_existing_contexts_keep_working_without_knowing_of_recording() -> None:
    class Older(EagerExecutionContext):
        def apply(self, op: Any, inputs: Any, attributes: Any = ()) -> Any:
            applied.append(op.name)
            return super().apply(op, inputs, attributes)

    applied: list[str] = []
    ctx = Older()
    assert ctx.ops.softplus(ctx.constant([0.0, 1.0])).shape == (2,)
    assert applied == ["abs", "negate", "exp", "log1p", "maximum", "add"]
    assert ctx.is_recording is False


def test_ops_belong_to_their_context() -> None:
    one, other = EagerExecutionContext(), EagerExecutionContext()
    assert isinstance(one.ops, Ops)
    assert one.ops is not other.ops


def test_what_is_substituted_is_called_with_the_same_operands_and_only_inside() -> None:
    ctx = EagerExecutionContext()
    x = ctx.constant([1.0, 2.0])

    def twice(body: Any) -> Any:
        return lambda *operands: ctx.ops.mul(body(*operands), 2.0)

    plain = ctx.ops.softmax(x).numpy()
    with ctx.substituting({"softmax": twice}):
        np.testing.assert_array_equal(ctx.ops.softmax(x).numpy(), plain * 2)
        with ctx.substituting({}):
            np.testing.assert_array_equal(ctx.ops.softmax(x).numpy(), plain)
        np.testing.assert_array_equal(ctx.ops.softmax(x).numpy(), plain * 2)
        with pytest.raises(OpError), ctx.substituting({}):
            ctx.ops.softmax(x, where=ctx.constant(np.zeros((2, 3, 2), bool)))
        np.testing.assert_array_equal(ctx.ops.softmax(x).numpy(), plain * 2)
    np.testing.assert_array_equal(ctx.ops.softmax(x).numpy(), plain)


def test_untagged_hands_nothing_to_a_sink_and_restores_it() -> None:
    tags: list[str] = []
    ctx = EagerExecutionContext(tag_sink=lambda name, tensor: tags.append(name))
    x = ctx.constant(1.0)
    with ctx.untagged():
        with ctx.untagged():
            assert ctx.tag(x, "a") is x
        assert (ctx.tag(x, "b"), ctx.shows("b")) == (x, False)
    assert ctx.shows("c")
    ctx.tag(x, "c")
    assert tags == ["c"]


@pytest.mark.parametrize("name", ["isRecording", "is_recording"])
@pytest.mark.parametrize("value", [True, property(lambda self: True)], ids=["attribute", "property"])
def test_a_subclass_may_override_either_name(name: str, value: Any) -> None:
    one = type("One", (EagerExecutionContext,), {name: value})
    mixed = type("Mixed", (type("Mixin", (), {name: value}), EagerExecutionContext), {})
    below = type("Below", (one,), {"isRecording": False})
    for kind in (one, type("Deeper", (one,), {}), mixed):
        assert (kind().isRecording, kind().is_recording) == (True, True)
    assert (below().isRecording, below().is_recording) == (False, False)
    assert (EagerExecutionContext().isRecording, EagerExecutionContext().is_recording) == (False, False)


def test_an_override_may_ask_its_base() -> None:
    class Asks(EagerExecutionContext):
        @property
        def is_recording(self) -> bool:
            return not super().is_recording

    assert (Asks().isRecording, Asks().is_recording) == (True, True)


@pytest.mark.parametrize("name", ["isRecording", "is_recording"])
@pytest.mark.parametrize("value", [True, property(lambda self: True)], ids=["attribute", "property"])
def test_either_name_may_be_set_on_a_class_later(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    base = type("Base", (EagerExecutionContext,), {})
    plain = type("Plain", (base,), {})
    own = type("Own", (base,), {"isRecording": property(lambda self: False)})
    for kind in (plain, own):
        ctx = kind()
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, value)
            assert (ctx.isRecording, ctx.is_recording) == (True, True)
            below = type("Below", (kind,), {})()
            assert (below.isRecording, below.is_recording) == (True, True)
        assert (ctx.isRecording, ctx.is_recording) == (False, False)
        assert (base().isRecording, base().is_recording) == (False, False)
    with monkeypatch.context() as patch:
        patch.setattr(base, name, value)
        assert (plain().isRecording, plain().is_recording) == (True, True)
        assert (own().isRecording, own().is_recording) == (False, False)
    assert (plain().isRecording, plain().is_recording) == (False, False)


def test_the_last_name_that_was_set_counts() -> None:
    kind: Any = type("Both", (EagerExecutionContext,), {"isRecording": True})
    kind.is_recording = property(lambda self: False)
    assert (kind().isRecording, kind().is_recording) == (False, False)
    kind.isRecording = property(lambda self: self.ops is not None)
    assert (kind().isRecording, kind().is_recording) == (True, True)


def test_an_attribute_of_one_context_has_both_names() -> None:
    kind: Any = type("Marked", (EagerExecutionContext,), {"isRecording": False})
    ctx = kind()
    ctx.isRecording = True
    assert (ctx.isRecording, ctx.is_recording) == (True, True)
    assert (kind().isRecording, kind().is_recording) == (False, False)
