"""Smaller programs with the same fault: steps, outputs and donations are left out while the fault stays."""

from collections.abc import Callable, Iterator

from lang_core import TapelineError
from tests.differential._update_engines import eagerly
from tests.differential._updates import Body, Step, UpdateProgram, pruned


def shrunk(program: UpdateProgram, fails: Callable[[UpdateProgram], bool], most: int = 200) -> UpdateProgram:
    """Returns a smaller program that fails.

    Args:
        program: program that fails.
        fails: returns whether a program fails.
        most: maximum number of programs to try.
    """
    tried, again = 0, True
    while again:
        again = False
        for smaller in _smaller(program):
            if tried == most:
                return program
            if not _is_valid(smaller):
                continue
            tried += 1
            if fails(smaller):
                program, again = smaller, True
                break
    return program


def _is_valid(program: UpdateProgram) -> bool:
    try:
        results = eagerly(program)
    except (TapelineError, KeyError, IndexError):  # a value, an axis or an element that the smaller program lacks
        return False
    pairs = [(program.inputs[argument], results[output]) for argument, output in program.donated]
    return all((x.shape, x.dtype) == (y.shape, y.dtype) for x, y in pairs)


def _smaller(program: UpdateProgram) -> Iterator[UpdateProgram]:
    """Yields programs with one part less."""
    body = program.body
    for place in range(len(body.outputs)):
        if len(body.outputs) > 1:
            outputs = body.outputs[:place] + body.outputs[place + 1 :]
            donated = tuple((a, o - (o > place)) for a, o in program.donated if o != place)
            yield program._replace(body=pruned(body._replace(outputs=outputs)), donated=donated)
    if program.donated:
        yield program._replace(donated=())
    for smaller in _smaller_bodies(body, ()):
        yield program._replace(body=pruned(smaller))


def _smaller_bodies(body: Body, outside: tuple[int, ...]) -> Iterator[Body]:
    for place in reversed(range(len(body.steps))):
        step = body.steps[place]
        before, after = body.steps[:place], body.steps[place + 1 :]
        if step.op == "block" or (step.op == "branch"):
            for inner in step.bodies:
                names = dict(zip(step.results, inner.outputs, strict=True))
                yield _renamed(body._replace(steps=before + inner.steps + after), names)
        if step.op == "loop":
            inner = step.bodies[0]
            if step.attributes[0] > 1:
                yield body._replace(steps=(*before, step._replace(attributes=(step.attributes[0] - 1,)), *after))
            names = dict(zip(step.results, inner.outputs, strict=True))
            names |= dict(zip(inner.arguments[1:], step.operands, strict=True))
            yield _renamed(body._replace(steps=before + inner.steps + after), names)
        if len(step.results) == 1:
            for operand in step.operands:
                yield _renamed(body._replace(steps=before + after), {step.results[0]: operand})
        for number, inner in enumerate(step.bodies):
            for smaller in _smaller_bodies(inner, outside):
                bodies = (*step.bodies[:number], smaller, *step.bodies[number + 1 :])
                yield body._replace(steps=(*before, step._replace(bodies=bodies), *after))


def _renamed(body: Body, names: dict[int, int]) -> Body:
    """Returns a body with other values in place of some."""

    def name(number: int) -> int:
        while number in names:
            number = names[number]
        return number

    def step_of(step: Step) -> Step:
        inner = tuple(_renamed(one, names) for one in step.bodies)
        return step._replace(operands=tuple(map(name, step.operands)), bodies=inner)

    return body._replace(steps=tuple(map(step_of, body.steps)), outputs=tuple(map(name, body.outputs)))
