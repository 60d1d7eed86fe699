"""Tools in conversations: their part of the prompt, and calls parsed out of answers.

Use in a server, for each request of a conversation:

    support = ToolSupport(template, tokenizer)                      # once per model
    plan = support.plan(tools, tool_choice, parallel=True)          # InputError is a 4xx; also without tools
    text = template.render(messages, tools=plan.tools)
    constraint = compile_constraint(plan.grammar, tokenizer, ends | plan.ends) if plan.grammar else None
    stream, parser = tokenizer.stream(keep=plan.keep), plan.new_parser()   # per answer
    for token_id in answer:
        for delta in parser.push(stream.push(token_id)): ...        # TextDelta, ReasoningDelta or CallDelta
    for delta in [*parser.push(stream.finish()), *parser.finish()]: ...
    finish_reason = "tool_calls" if parser.calls else ...

Stop strings are cut from the text before it is pushed. ``ParsedAnswer.joined(deltas)`` is the answer that is not
streamed.
"""

from tapeline.toolcalls._cut_json import closed_json
from tapeline.toolcalls._deltas import AnswerDelta, CallDelta, ParsedAnswer, ReasoningDelta, TextDelta, ToolCall
from tapeline.toolcalls._formats import FORMATS, CallFormat, find_format
from tapeline.toolcalls._generic import generic_messages
from tapeline.toolcalls._grammars import AnswerForm
from tapeline.toolcalls._parser import AnswerParser, PlainParser
from tapeline.toolcalls._support import ToolPlan, ToolSupport
from tapeline.toolcalls._tools import Tool, ToolChoice, read_choice, read_tools
