"""Templates that would take for ever, or all memory."""

import pytest

from lang_core import InputError
from tapeline.text._chat_template import ChatTemplate
from tapeline.text._template_limits import RenderLimits

LIMITS = RenderLimits(seconds=0.1, characters=1000)
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in range(99999) if a < 0 %}{% endfor %}" * 200,
    ],
)
def test_a_template_that_takes_too_long_is_given_up(template: str) -> None:
    with pytest.raises(InputError, match=r"here: the chat template takes longer than 0\.1 s"):
        ChatTemplate(template, "here", limits=LIMITS).render(MESSAGES)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(300) %}{{ messages[0].content }}{% endfor %}",
        "{{ 'a' * 1001 }}",
        "{{ 10000000000 * 'a' }}",
        "{% set x = namespace(s='ab') %}{% for a in range(60) %}{% set x.s = x.s ~ x.s %}{% endfor %}",
        "{% set x = namespace(s='ab') %}{% for a in range(60) %}{% set x.s = x.s + x.s %}{% endfor %}",
        "{% set x = namespace(s='ab') %}{% for a in range(60) %}{% set x.s = x.s|replace('a', x.s) %}{% endfor %}",
        "{{ (range(1001)|list)|length }}",
        "{{ 9 ** 999999999 }}",
    ],
)
def test_a_template_that_makes_too_much_is_given_up(template: str) -> None:
    with pytest.raises(InputError, match="the chat template makes more than 1000 characters"):
        ChatTemplate(template, "here", limits=LIMITS).render(MESSAGES)


def test_what_is_within_the_limits_is_rendered_as_ever() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{{ m.content ~ '!' }}"
        "{% else %}none{% endfor %}{{ 'ab' * 3 + 'c' }}{{ 2 ** 10 }}{{ [1] + [2] }}{{ missing|default('-') }}"
        "{% for x in missing %}{% endfor %}",
        "here",
        limits=LIMITS,
    )
    assert template.render([*MESSAGES, *MESSAGES]) == "1/2,Hello!2/2Hello!abababc1024[1, 2]-"
    assert template.render([]) == "noneabababc1024[1, 2]-"
