import dataclasses
from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.layers._rope_config import RopeConfig, RopeMode, rope_config_from_hf
from transformer_core.layers._rope_scaling import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongropeScaling,
    NoScaling,
    ProportionalScaling,
    YarnScaling,
)

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {"short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0], "original_max_position_embeddings": 16}


def read(rope=None, head_size=4, form=5, **others) -> RopeConfig:
    """``rope`` with its type, in one of the two forms."""
    config = {"max_position_embeddings": 128, **others}
    if rope is not None:
        config["rope_parameters" if form == 5 else "rope_scaling"] = rope
    return rope_config_from_hf(config, head_size)


def test_without_any_field_it_is_the_plain_one():
    assert read() == RopeConfig(rotated=4, base=10000.0, trained_length=128, scaling=NoScaling())
    assert read().mode is RopeMode.SPLIT_HALF
    assert read(rope_scaling=None, rope_theta=5e5).base == 5e5


@pytest.mark.parametrize("form", [4, 5])
@pytest.mark.parametrize("key", ["type", "rope_type"])
@pytest.mark.parametrize(
    ("kind", "rope", "scaling"),
    [
        ("default", {}, NoScaling()),
        ("linear", {"factor": 2}, LinearScaling(2.0)),
        ("dynamic", {"factor": 2.5}, DynamicScaling(2.5, 128)),
        ("llama3", LLAMA3, Llama3Scaling(8.0, 1.0, 4.0, 64)),
        ("yarn", {"factor": 1}, YarnScaling(1.0, 128, 32.0, 1.0, 1.0, True)),
        ("proportional", {"factor": 2}, ProportionalScaling(1.0, 2.0)),
        ("longrope", {**LONGROPE, "factor": 1.0}, LongropeScaling((1.0, 1.5), (2.0, 3.0), 16, 1.0)),
    ],
)
def test_every_type_is_read_from_both_forms(form, key, kind, rope, scaling):
    assert read({key: kind, **rope}, form=form).scaling == scaling


def test_a_base_inside_of_the_parameters_comes_first():
    assert read({"rope_type": "default", "rope_theta": 300.0}, rope_theta=7.0).base == 300.0
    assert read({"rope_type": "default"}, rope_theta=7.0).base == 7.0


def test_partial_rotation_is_read_from_both_places():
    assert read({"rope_type": "default", "partial_rotary_factor": 0.5}, head_size=20).rotated == 10
    assert read(partial_rotary_factor=0.4, head_size=40).rotated == 16


def test_original_length_beside_max_position_embeddings_comes_first():
    scaling = read({"rope_type": "llama3", **LLAMA3}, original_max_position_embeddings=32).scaling
    assert isinstance(scaling, Llama3Scaling)
    assert scaling.original_length == 32


def test_factors_are_inferred_from_the_lengths_where_absent():
    yarn = read({"rope_type": "yarn", "original_max_position_embeddings": 32}).scaling
    assert isinstance(yarn, YarnScaling)
    assert yarn.factor == 4.0
    longrope = read({"rope_type": "longrope", **LONGROPE}).scaling
    assert longrope.attention_factor == pytest.approx((1 + 3 / 4) ** 0.5)  # ln 8 / ln 16


def test_both_fields_may_stand_side_by_side_if_they_agree():
    rope = {"rope_type": "linear", "factor": 2.0}
    assert read(rope, rope_scaling=rope).scaling == LinearScaling(2.0)
    with pytest.raises(ConfigError, match=r"field 'rope_scaling': expected the same as rope_parameters .*, or null"):
        read(rope, rope_scaling={"rope_type": "linear", "factor": 3.0})


def test_an_unknown_type_is_named_with_what_is_near():
    message = (
        r"config.json: rope_scaling: field 'type': expected one of default, linear, dynamic, llama3, yarn, longrope, "
        r"proportional, su, mrope; did you mean 'yarn'\?; found 'yarm'"
    )
    with pytest.raises(ConfigError, match=message):
        read({"type": "yarm"}, form=4)


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "linear"}, r"rope_parameters: field 'factor' is missing: expected a finite number above 0"),
        ({"rope_type": "linear", "factor": "2"}, "field 'factor': expected a finite number above 0; found '2'"),
        ({"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1}, r"'high_freq_factor': expected a number above low_"),
        (
            {"rope_type": "yarn", "factor": 2, "beta_fast": 0.5},
            r"'beta_fast': expected a number of at least beta_slow \(1\)",
        ),
        ({"rope_type": "yarn", "factor": 2, "truncate": 1}, "'truncate': expected true or false; found 1"),
        ({"rope_type": "longrope", **LONGROPE, "long_factor": [1.0]}, "'long_factor': expected a list of 2 finite"),
        ({"rope_type": "default", "rope_theta": 1}, "'rope_theta': expected a finite number above 1; found 1"),
        ({"rope_type": "default", "partial_rotary_factor": 1.5}, "'partial_rotary_factor': expected a number above 0,"),
        ({"rope_type": "default", "partial_rotary_factor": 0.75}, "an even number of rotated dims; found 3"),
        ({"full_attention": {"rope_type": "default"}}, "'full_attention': expected one set of RoPE parameters"),
        ({"rope_type": "default", "mrope_section": 3}, "'mrope_section': expected a list of three integers; found 3"),
        ({"rope_type": "default", "mrope_section": [1, 2, 3]}, r"three sizes that add up to 2 .*; found \[1, 2, 3\]"),
        ("yarn", "field 'rope_parameters': expected an object; found 'yarn'"),
    ],
)
def test_wrong_fields_are_refused(rope, message):
    with pytest.raises(ConfigError, match=message):
        read(rope)


def test_the_trained_length_is_required():
    with pytest.raises(ConfigError, match="field 'max_position_embeddings' is missing"):
        rope_config_from_hf({}, 4)


@pytest.mark.parametrize(("rotated", "base"), [(3, 1e4), (0, 1e4), (4, 1.0), (4, float("nan"))])
def test_a_config_made_by_hand_is_checked(rotated, base):
    with pytest.raises(ConfigError, match=r"RoPE: the .* must be .*above"):
        RopeConfig(rotated=rotated, base=base)


@pytest.mark.parametrize(
    ("scaling", "reach"),
    [
        (NoScaling(), 100),
        (LinearScaling(2.5), 250),
        (ProportionalScaling(0.5, 2.5), 250),
        (DynamicScaling(2.0, 100), None),
        (Llama3Scaling(8.0, 1.0, 4.0, 64), 512),
        (YarnScaling(2.0, 40, 32.0, 1.0, 1.0, True), 100),
        (LongropeScaling((1.0,), (2.0,), 16, 1.0), 100),
    ],
)
def test_reach(scaling, reach):
    assert RopeConfig(rotated=2, trained_length=100, scaling=scaling).reach == reach


def test_every_field_tells_configs_apart():
    one = RopeConfig(rotated=6, scaling=LinearScaling(2.0))
    changes = {
        "rotated": 8,
        "base": 9.0,
        "trained_length": 7,
        "scaling": LinearScaling(3.0),
        "mode": RopeMode.INTERLEAVED,
        "sections": (1, 1, 1),
        "sections_interleaved": True,
        "clockwise": True,
    }
    assert set(changes) == {field.name for field in dataclasses.fields(RopeConfig)}
    others = [dataclasses.replace(one, **{name: value}) for name, value in changes.items()]
    assert len({one, *others}) == 1 + len(others)


def test_a_mode_may_be_its_name_and_no_other():
    def config(**choices: Any) -> RopeConfig:
        return RopeConfig(rotated=8, trained_length=16, **choices)

    assert config(mode="split_half") == config(mode=RopeMode.SPLIT_HALF)
    assert config(mode="interleaved").mode is RopeMode.INTERLEAVED
    with pytest.raises(ConfigError, match="RopeConfig: mode: expected one of split_half, interleaved; found 'neox'"):
        config(mode="neox")
    with pytest.raises(ConfigError, match="RopeConfig: sections_interleaved: expected true or false; found 'no'"):
        config(sections_interleaved="no")


def test_proportional_ropes_go_over_whole_heads():
    config = read({"rope_type": "proportional", "partial_rotary_factor": 0.25}, head_size=16)
    assert (config.rotated, config.scaling) == (16, ProportionalScaling(0.25))
    with pytest.raises(ConfigError, match="'partial_rotary_factor': expected a number above 0, not above 1; found 2"):
        read({"rope_type": "proportional", "partial_rotary_factor": 2})
