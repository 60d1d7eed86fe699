import pytest

from lang_core import (
    CheckpointError,
    CompileError,
    ConfigError,
    DeviceError,
    GraphError,
    InputError,
    OpError,
    RecordingError,
    TapelineError,
    Tensor,
    TensorSpec,
    TraceEscapeError,
    VerificationError,
    near_names,
)


def test_near_names() -> None:
    known = ["model.norm.weight", "model.embed_tokens.weight", "lm_head.weight"]
    assert near_names("model.norm.weigth", known).startswith("; did you mean 'model.norm.weight'")
    assert near_names("zzz", known) == ""
    assert near_names(3, known) == ""  # pyright: ignore[reportArgumentType] - of a caller who passed no name
    assert near_names("lm_head.weigh", iter(known), limit=1) == "; did you mean 'lm_head.weight'?"


@pytest.mark.parametrize(
    "kind",
    [InputError, OpError, TraceEscapeError, RecordingError, GraphError, CompileError, DeviceError, VerificationError],
)
def test_every_error_is_a_tapeline_error(kind: type[Exception]) -> None:
    assert issubclass(kind, TapelineError)


def test_what_the_user_can_mend_is_an_input_error() -> None:
    assert issubclass(CheckpointError, InputError)
    assert issubclass(ConfigError, InputError)


def test_a_tensor_without_data_does_not_give_any() -> None:
    tensor = Tensor()
    tensor.spec = TensorSpec((1,), "f32")
    for ask in (tensor.numpy, lambda: float(tensor), tensor.__array__):
        with pytest.raises(TraceEscapeError, match=r"numpy\(\) was asked of f32\[1\], a value without data"):
            ask()
