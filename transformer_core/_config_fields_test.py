import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields


def fields(**values) -> ConfigFields:
    return ConfigFields(values, "dir/config.json")


def test_values_are_returned_as_they_are():
    config = fields(a=3, b=0.5, c=2, d=[1, 2.5], e=True, f="x", g={"h": 4}, i=None)
    assert config.integer("a") == 3
    assert config.number("b") == 0.5
    assert isinstance(config.number("c"), float)
    assert config.numbers("d", 2) == (1.0, 2.5)
    assert config.boolean("e", False) is True
    assert config.choice("f", ("x", "y")) == "x"
    assert config.object("g").integer("h") == 4


def test_null_counts_as_absent():
    config = fields(a=None)
    assert not config.has("a")
    assert config.integer("a", 7) == 7
    assert config.boolean("a", True) is True


def test_a_missing_field_is_named_with_its_file_and_what_is_near():
    message = r"^dir/config.json: field 'hidden_size' is missing: expected an integer of at least 1"
    with pytest.raises(ConfigError, match=message + r"; did you mean 'hiden_size'\?$"):
        fields(hiden_size=4).integer("hidden_size")


@pytest.mark.parametrize("value", [0, -3, 2.0, "4", True, [4], float("nan")])
def test_integers_are_checked(value):
    with pytest.raises(ConfigError, match=r"field 'a': expected an integer of at least 1; found "):
        fields(a=value).integer("a")


@pytest.mark.parametrize("value", [0, -1.5, "4", False, float("inf"), float("nan"), {}])
def test_numbers_are_checked(value):
    with pytest.raises(ConfigError, match=r"field 'a': expected a finite number above 0; found "):
        fields(a=value).number("a")


@pytest.mark.parametrize("value", [3.0, [1.0], [1.0, 2.0, 3.0], [1.0, "2"], [1.0, 0], [1.0, float("inf")]])
def test_lists_are_checked(value):
    with pytest.raises(ConfigError, match=r"field 'a': expected a list of 2 finite numbers above 0; found "):
        fields(a=value).numbers("a", 2)


def test_booleans_choices_and_objects_are_checked():
    with pytest.raises(ConfigError, match="field 'a': expected true or false; found 1"):
        fields(a=1).boolean("a", False)
    with pytest.raises(
        ConfigError, match=r"field 'a': expected one of yarn, linear; did you mean 'yarn'\?; found 'yarm'"
    ):
        fields(a="yarm").choice("a", ("yarn", "linear"))
    with pytest.raises(ConfigError, match="field 'a': expected an object; found 3"):
        fields(a=3).object("a")


def test_an_inner_object_is_named_in_messages():
    with pytest.raises(ConfigError, match=r"^dir/config.json: rope: field 'factor' is missing"):
        fields(rope={}).object("rope").number("factor")
