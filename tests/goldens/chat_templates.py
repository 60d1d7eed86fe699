"""Chat templates in the styles of well-known models, and conversations for them: plain data."""

from typing import Any, Final

TOKENS: Final = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

TEMPLATES: Final = {
    "headers": """{% set loop_messages = messages %}
{% for message in loop_messages %}
{% set content = '<|start|>' + message['role'] + '<|stop|>\\n\\n' + message['content'] | trim + '<|eot|>' %}
{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}
{{ content }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|start|>assistant<|stop|>\\n\\n' }}{% endif %}""",
    "chatml": """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}{% continue %}{% endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "turns": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
    {{- raise_exception('System role not supported') }}
{%- endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}""",
    "inst": """{%- set ns = namespace(index=0, system='') %}
{%- if messages[0].role == 'system' %}{% set ns.system = messages[0].content ~ '\\n\\n' %}{% endif %}
{{- bos_token }}
{%- for message in messages | rejectattr('role', 'equalto', 'system') %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' ~ (ns.system if loop.first else '') ~ message.content ~ ' [/INST]' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{ ' ' ~ message.content ~ eos_token }}{% endgeneration %}
    {%- else %}
        {{- raise_exception('Only user, system and assistant roles are supported, with no ' ~ message.role) }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- '#' ~ ns.index }}""",
    "json": """{%- macro shown(value, pad=None) %}{{ value | tojson(indent=pad) }}{% endmacro %}
{% for message in messages %}
  {% if loop.index > 3 %}
    {% break %}
  {% endif %}
  {{ shown(message) }}
    {# a comment #}
{% endfor %}
{% if tools is none %}no tools{% else %}{{ tools | tojson }}{% endif %}
{{ shown({'z': 1, 'a': [1.5, none, true]}, 2) }}{{ unk_token }}
{{ undefined_thing }}|{{ messages | map(attribute='role') | join(',') }}|{{ messages[-1].content[:4] | upper }}""",
}  # fmt: skip

CONVERSATIONS: Final[dict[str, list[dict[str, Any]]]] = {
    "one": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Why?\n"}],
    "turns": [
        {"role": "user", "content": "1 < 2 && \"3\" > 'x'"},
        {"role": "assistant", "content": "Ja — 日本語 🙂"},
        {"role": "user", "content": "and\n\nthen?"},
    ],
    "answered": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    "twice": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "tool": [{"role": "user", "content": "a"}, {"role": "tool", "content": "{}"}],
    "empty": [{"role": "user", "content": ""}],
    "long": [{"role": "user" if i % 2 == 0 else "assistant", "content": str(i)} for i in range(5)],
}
