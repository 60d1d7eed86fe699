"""Drawn programs that update tensors in place, with loops, branches, blocks and donated arguments.

Most updates read what they overwrite, through views, moves and arithmetic. Values are small whole numbers, so that
every engine computes every result exactly.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import Argument, EntryPoint, ExecutionContext, Tensor, TensorSpec
from tests.differential._trial import Array

_MOST: Final = 64  # elements of a tensor
_BOUND: Final = 1 << 12  # of the numbers of a carried value
_EXACT: Final = 1 << 22  # f32 has every whole number up to 4 times this one
_SMALL: Final = 8.0


class Step(NamedTuple):
    """Step of a program. Values are named by numbers.

    Attributes:
        op: name of the step, a key of ``_CALLS`` or one of loop, branch and block.
        operands: values that it takes.
        attributes: other arguments.
        results: values that it makes.
        bodies: programs inside of it; they see the values outside.
    """

    op: str
    operands: tuple[int, ...]
    attributes: tuple[Any, ...]
    results: tuple[int, ...]
    bodies: tuple["Body", ...] = ()


class Body(NamedTuple):
    """Steps with arguments and outputs."""

    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


class UpdateProgram(NamedTuple):
    """Drawn program.

    Attributes:
        inputs: data, one array per argument of the body; the last two are positions 0 to 2.
        body: what is computed.
        donated: pairs of an argument and the output that takes over its buffer, by place.
    """

    inputs: tuple[Array, ...]
    body: Body
    donated: tuple[tuple[int, int], ...]

    def __call__(self, ctx: ExecutionContext, *tensors: Tensor) -> list[Tensor]:
        """Runs the program in a context."""
        return _run(ctx, self.body, dict(zip(self.body.arguments, tensors, strict=True)))

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the arguments."""
        return tuple(TensorSpec(array.shape, "i32" if array.dtype.kind == "i" else "f32") for array in self.inputs)

    def entry_point(self, name: str) -> EntryPoint:
        """Returns the program as an entry point with results r0, r1, ..."""
        taken = dict(self.donated)
        arguments = [
            Argument(f"x{i}", spec, alias_result=f"r{taken[i]}" if i in taken else None)
            for i, spec in enumerate(self.specs)
        ]
        fn = lambda ctx, *tensors: {f"r{i}": result for i, result in enumerate(self(ctx, *tensors))}  # noqa: E731
        return EntryPoint(name, fn, tuple(arguments))

    def __str__(self) -> str:
        heads = [
            f"%{number} = x{i}{list(x.shape)}"
            for i, (number, x) in enumerate(zip(self.body.arguments, self.inputs, strict=True))
        ]
        donated = "".join(f" x{argument} -> r{output}" for argument, output in self.donated)
        return "\n".join([*heads, *_lines(self.body, ""), f"donated:{donated or ' none'}"])


def _lines(body: Body, indent: str) -> Iterator[str]:
    for step in body.steps:
        results, operands = (", ".join(f"%{number}" for number in numbers) for numbers in (step.results, step.operands))
        yield f"{indent}{results} = {step.op}({operands}) {list(step.attributes) or ''}".rstrip()
        for inner in step.bodies:
            yield f"{indent}  ({', '.join(f'%{number}' for number in inner.arguments)}):"
            yield from _lines(inner, f"{indent}    ")
    yield f"{indent}return {', '.join(f'%{number}' for number in body.outputs)}"


def _run(ctx: ExecutionContext, body: Body, values: Mapping[int, Tensor]) -> list[Tensor]:
    known = dict(values)
    for step in body.steps:
        operands = [known[number] for number in step.operands]
        known.update(zip(step.results, _results(ctx, step, operands, known), strict=True))
    return [known[number] for number in body.outputs]


def _results(
    ctx: ExecutionContext, step: Step, operands: list[Tensor], known: Mapping[int, Tensor]
) -> Sequence[Tensor]:
    if step.op == "loop":
        inner = step.bodies[0]

        def advance(i: Tensor, *carried: Tensor) -> list[Tensor]:
            return _run(ctx, inner, {**known, **dict(zip(inner.arguments, (i, *carried), strict=True))})

        return ctx.ops.fori_loop(step.attributes[0], advance, operands)
    if step.op == "branch":
        is_taken = ctx.ops.greater(operands[0], step.attributes[0])
        on_true, on_false = step.bodies
        return ctx.ops.cond(is_taken, lambda: _run(ctx, on_true, known), lambda: _run(ctx, on_false, known))
    if step.op == "block":
        with ctx.block(step.attributes[0]):
            return _run(ctx, step.bodies[0], known)
    return [_CALLS[step.op](ctx, *operands, *step.attributes)]


def _places(c: Any, base: Any, by: Any) -> Any:
    """Returns constant positions, moved by a run-time number."""
    return c.ops.add(c.ops.constant(base, "i32"), by)


def _starts(known: Sequence[int | None], scalars: Iterable[Any]) -> list[Any]:
    """Returns starts, in which None stands for the next scalar."""
    rest = iter(scalars)
    return [next(rest) if start is None else start for start in known]


def _dynamic_slice(c: Any, x: Any, *rest: Any) -> Any:
    *scalars, known, sizes = rest
    return c.ops.dynamic_slice(x, _starts(known, scalars), sizes)


def _dynamic_update_slice(c: Any, x: Any, update: Any, *rest: Any) -> Any:
    *scalars, known = rest
    return c.ops.dynamic_update_slice(x, update, _starts(known, scalars))


def _put(c: Any, x: Any, update: Any, places: Any, axis: int, marks: Any) -> Any:
    where = () if marks is None else (c.ops.constant(np.array(marks)),)
    return c.ops.put(x, places, update, axis, *where)


def _ordered(c: Any, x: Any, batch: int, count: int) -> Any:
    """Returns distinct positions 0 to ``count - 1`` that depend on what x holds: [batch, count]."""
    line = c.ops.slice(c.ops.reshape(x, (x.spec.size,)), (0,), (count,))
    return c.ops.broadcast(c.ops.cast(c.ops.sort(line, 0)[1], "i32"), (batch, count))


def _product(c: Any, x: Any) -> Any:
    """Returns ``x x^T x`` of a matrix of small numbers, brought back into bounds."""
    small = c.ops.clamp(x, -_SMALL, _SMALL)
    square = c.ops.clamp(c.ops.dot_general(small, small, ((1,), (1,))), -_SMALL, _SMALL)
    return c.ops.dot_general(square, small, ((1,), (0,)))


def _scatter(c: Any, x: Any, update: Any, places: Any, axis: int, reduction: str) -> Any:
    return c.ops.scatter(x, c.ops.broadcast(places, update.shape), update, axis, reduction)


_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "constant": lambda c, rows: c.ops.constant(rows, "f32"),
    "reshape": lambda c, x, shape: c.ops.reshape(x, shape),
    "transpose": lambda c, x, axes: c.ops.transpose(x, axes),
    "slice": lambda c, x, start, stop, step: c.ops.slice(x, start, stop, step),
    "dynamic_slice": _dynamic_slice,
    "reverse": lambda c, x, axis: c.ops.reverse(x, (axis,)),
    "take": lambda c, x, places, axis: c.ops.take(x, c.ops.constant(places, "i32"), axis),
    "take_moved": lambda c, x, by, places, axis: c.ops.take(x, _places(c, places, by), axis),
    "joined": lambda c, x, y, axis: c.ops.concat((x, y), axis),
    "turned": lambda c, x, axis, at: c.ops.concat(c.ops.split(x, (at, x.shape[axis] - at), axis)[::-1], axis),
    "padded": lambda c, x, axis: c.ops.pad(
        c.ops.slice_axis(x, axis, 1, x.shape[axis]), [0] * x.ndim, [int(i == axis) for i in range(x.ndim)]
    ),
    "negate": lambda c, x: c.ops.negate(x),
    "double": lambda c, x: c.ops.mul(x, 2),
    "same": lambda c, x: c.ops.mul(x, 1),
    "add": lambda c, x, y: c.ops.add(x, y),
    "more": lambda c, x: c.ops.add(x, 1),
    "maximum": lambda c, x, y: c.ops.maximum(x, y),
    "chosen": lambda c, x, y: c.ops.select(c.ops.greater(x, 0), x, y),
    "clamp": lambda c, x, most: c.ops.clamp(x, -most, most),
    "summed": lambda c, x, axis: c.ops.broadcast(c.ops.sum(x, axis, keepdims=True), x.shape),
    "largest": lambda c, x, axis: c.ops.broadcast(c.ops.max(x, axis, keepdims=True), x.shape),
    "cumsum": lambda c, x, axis: c.ops.cumsum(x, axis),
    "sort": lambda c, x, axis: c.ops.sort(x, axis)[0],
    "product": _product,
    "places": lambda c, by, base: _places(c, base, by),
    "known_places": lambda c, base: c.ops.constant(base, "i32"),
    "ordered": _ordered,
    "dynamic_update_slice": _dynamic_update_slice,
    "put": _put,
    "scatter": _scatter,
}
UPDATES: Final = ("dynamic_update_slice", "put", "scatter")


@dataclass
class _Kind:
    """Shape, dtype and the largest number of a value."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    bound: float = 9.0


@dataclass
class _Drawer:
    """Draws steps; ``scope`` has the tensors that are there, ``scalars`` the positions."""

    rng: np.random.Generator
    kinds: dict[int, _Kind] = field(default_factory=dict)
    scope: list[int] = field(default_factory=list)
    scalars: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    count: int = 0

    def value(self, kind: _Kind) -> int:
        self.kinds[self.count] = kind
        self.count += 1
        return self.count - 1

    def whole(self, low: int, high: int) -> int:
        """Returns a number of low .. high."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[self.whole(0, len(values) - 1)]

    def add(self, op: str, operands: Sequence[int], attributes: Sequence[Any], kind: _Kind) -> int:
        """Adds a step of one result, brought back into bounds where it may have become too large."""
        result = self.value(kind)
        self.steps.append(Step(op, tuple(operands), tuple(attributes), (result,)))
        if kind.bound > _EXACT and kind.dtype == "f32":
            return self.clamped(result)
        return result

    def clamped(self, x: int) -> int:
        kind = self.kinds[x]
        return self.add("clamp", (x,), (float(_BOUND),), _Kind(kind.shape, kind.dtype, _BOUND))

    def tensor(self) -> int:
        """Returns a value that is there, rather a late one."""
        late = self.scope[-3:] if self.chance(0.6) else self.scope
        return self.one_of(late)

    # Parts of tensors.
    def cut(self, x: int, sizes: tuple[int, ...]) -> int:
        """Takes a part of these sizes out of x, which has room for it along each axis."""
        kind = self.kinds[x]
        part = _Kind(sizes, kind.dtype, kind.bound)
        way = self.whole(0, 9)
        room = [dim - size for dim, size in zip(kind.shape, sizes, strict=True)]
        if way < 5:
            start = [self.whole(0, most) for most in room]
            stop = [a + size for a, size in zip(start, sizes, strict=True)]
            return self.add("slice", (x,), (tuple(start), tuple(stop), None), part)
        if way < 7:
            known, scalars = self.starts(room)
            return self.add("dynamic_slice", (x, *scalars), (known, sizes), part)
        axes = [i for i, most in enumerate(room) if most]
        if way == 7 and len(axes) == 1 and kind.shape[axes[0]] >= 2 * sizes[axes[0]] - 1:
            step = [1 + (i == axes[0]) for i in range(len(sizes))]
            stop = [(size - 1) * by + 1 for size, by in zip(sizes, step, strict=True)]
            return self.add("slice", (x,), ((0,) * len(sizes), tuple(stop), tuple(step)), part)
        for axis in axes:
            shape = tuple(sizes[i] if i == axis else dim for i, dim in enumerate(kind.shape))
            places = [self.whole(0, kind.shape[axis] - 1) for _ in range(sizes[axis])]
            part = _Kind(shape, kind.dtype, kind.bound)
            if self.chance(0.3):
                x = self.add("take_moved", (x, self.one_of(self.scalars)), (places, axis), part)
            else:
                x = self.add("take", (x,), (places, axis), part)
            kind = self.kinds[x]
        return x

    def starts(self, room: Sequence[int]) -> tuple[tuple[int | None, ...], list[int]]:
        """Returns starts, None for each that is a run-time number, and those numbers."""
        known: list[int | None] = []
        for most in room:
            if most and self.chance(0.55):
                known.append(None)
            else:
                known.append(self.whole(0, most) if self.chance(0.85) else self.whole(-2, most + 2))
        return tuple(known), [self.one_of(self.scalars) for start in known if start is None]

    def of_shape(self, shape: tuple[int, ...], source: int) -> int | None:
        """Returns a value of a shape, made of a source; None where the source is too small."""
        kind = self.kinds[source]
        if kind.shape == shape:
            return source
        fits = len(kind.shape) == len(shape) and all(a >= b for a, b in zip(kind.shape, shape, strict=True))
        if fits and self.chance(0.8):
            return self.cut(source, shape)
        size, count = math.prod(kind.shape), math.prod(shape)
        if size < count:
            return None
        flat = self.add("reshape", (source,), ((size,),), _Kind((size,), kind.dtype, kind.bound))
        part = flat if size == count else self.cut(flat, (count,))
        return self.add("reshape", (part,), (shape,), _Kind(shape, kind.dtype, kind.bound))

    def worked(self, x: int, beside: int) -> int:
        """Returns x after an op that keeps its shape."""
        kind = self.kinds[x]
        axis = self.whole(0, len(kind.shape) - 1)
        op = self.one_of(
            "negate double same more add maximum chosen reverse turned padded summed largest cumsum sort product "
            "transposed".split()
        )
        if op in ("add", "maximum", "chosen"):
            other = self.of_shape(kind.shape, beside)
            if other is None or self.kinds[other].dtype != kind.dtype:
                return x
            bound = self.kinds[other].bound
            grown = kind.bound + bound if op == "add" else max(kind.bound, bound)
            return self.add(op, (x, other), (), _Kind(kind.shape, kind.dtype, grown))
        if op == "product":
            if len(kind.shape) != 2 or kind.dtype != "f32":
                return x
            return self.add(op, (x,), (), _Kind(kind.shape, kind.dtype, _SMALL * _SMALL * kind.shape[0]))
        if op == "transposed":
            if len(kind.shape) < 2 or kind.shape[-1] != kind.shape[-2]:
                return x
            axes = (*range(len(kind.shape) - 2), len(kind.shape) - 1, len(kind.shape) - 2)
            return self.add("transpose", (x,), (axes,), kind)
        growth = {"double": 2, "summed": kind.shape[axis], "cumsum": kind.shape[axis]}.get(op, 1)
        after = _Kind(kind.shape, kind.dtype, kind.bound * growth + (op == "more"))
        if op == "turned":
            if kind.shape[axis] < 2:
                return x
            return self.add(op, (x,), (axis, self.whole(1, kind.shape[axis] - 1)), after)
        if op in ("reverse", "padded", "summed", "largest", "cumsum", "sort"):
            return self.add(op, (x,), (axis,), after)
        return self.add(op, (x,), (), after)

    # Kinds of steps.
    def update(self) -> int:
        """Draws an update, most often of parts of its target."""
        x = self.viewed(self.tensor()) if self.chance(0.35) else self.tensor()
        kind = self.kinds[x]
        op = self.one_of(("dynamic_update_slice", "dynamic_update_slice", "put", "put", "scatter"))
        if op == "put" and len(kind.shape) < 2:
            x = self.add("reshape", (x,), ((1, *kind.shape),), _Kind((1, *kind.shape), kind.dtype, kind.bound))
            kind = self.kinds[x]
        axis = self.whole(1 if op == "put" else 0, len(kind.shape) - 1)
        one = self.chance(0.75)
        sizes = tuple(
            self.whole(1, dim) if i == axis or (op == "dynamic_update_slice" and not one) else dim
            for i, dim in enumerate(kind.shape)
        )
        sources = [number for number in self.scope if self.kinds[number].dtype == kind.dtype]
        source = x if self.chance(0.65) or not sources else self.one_of(sources)
        update = self.of_shape(sizes, source)
        if update is None:
            update = self.cut(x, sizes)
        for _ in range(self.one_of((0, 0, 0, 1, 1, 2))):
            update = self.worked(update, x if self.chance(0.5) else source)
        after = _Kind(kind.shape, kind.dtype, max(kind.bound, self.kinds[update].bound))
        if op == "dynamic_update_slice":
            known, scalars = self.starts([dim - size for dim, size in zip(kind.shape, sizes, strict=True)])
            return self.add(op, (x, update, *scalars), (known,), after)
        return self.placed(op, x, update, axis, after)

    def placed(self, op: str, x: int, update: int, axis: int, after: _Kind) -> int:
        """Draws a put or a scatter along an axis."""
        kind, count = self.kinds[x], self.kinds[update].shape[axis]
        batch, size = kind.shape[0] if op == "put" else 1, kind.shape[axis]
        of_data = op == "put" and count > 0 and math.prod(kind.shape) >= count and self.chance(0.15)
        if of_data:
            places = self.add(
                "ordered",
                (self.one_of((x, self.tensor_of(count, x))),),
                (batch, count),
                _Kind((batch, count), "i32", count),
            )
        else:
            spare = 2 if size - count >= 2 and self.chance(0.5) else 0
            rows = np.argsort(self.rng.random((batch, size - spare)), 1)[:, :count]
            if op == "scatter":
                rows = rows.reshape([count if i == axis else 1 for i in range(len(kind.shape))])
            spec = _Kind(tuple(rows.shape), "i32", size)
            if spare:
                places = self.add("places", (self.one_of(self.scalars[:2]),), (rows.tolist(),), spec)
            else:
                places = self.add("known_places", (), (rows.tolist(),), spec)
        if op == "put":
            marks = (self.rng.random((batch, count)) < 0.6).tolist() if self.chance(0.3) else None
            return self.add(op, (x, update, places), (axis, marks), after)
        reduction = self.one_of(("set", "set", "add", "max"))
        if reduction == "add":
            after = _Kind(after.shape, after.dtype, kind.bound + self.kinds[update].bound)
        return self.add(op, (x, update, places), (axis, reduction), after)

    def tensor_of(self, count: int, other: int) -> int:
        """Returns a value of at least so many elements."""
        x = self.tensor()
        return x if math.prod(self.kinds[x].shape) >= count else other

    def viewed(self, x: int) -> int:
        """Draws the tensor in another shape or order."""
        kind = self.kinds[x]
        if len(kind.shape) > 1 and self.chance(0.3):
            axes = tuple(int(i) for i in self.rng.permutation(len(kind.shape)))
            return self.add(
                "transpose", (x,), (axes,), _Kind(tuple(kind.shape[i] for i in axes), kind.dtype, kind.bound)
            )
        shape = self.one_of(_shapes_of(math.prod(kind.shape)))
        return self.add("reshape", (x,), (shape,), _Kind(shape, kind.dtype, kind.bound))

    def body(self, arguments: Sequence[int], wanted: Sequence[int], length: int) -> Body:
        """Draws a program inside of this one, with an output of the spec of each wanted value."""
        scope, scalars, steps = list(self.scope), list(self.scalars), self.steps
        self.steps = []
        self.scope += [number for number in arguments if self.kinds[number].shape]
        self.scalars += [number for number in arguments if not self.kinds[number].shape]
        for _ in range(length):
            self.step(deep=False)
        outputs = []
        for number in wanted:
            kind = self.kinds[number]
            fitting = [
                other
                for other in self.scope
                if self.kinds[other].dtype == kind.dtype and math.prod(self.kinds[other].shape) >= math.prod(kind.shape)
            ]
            made = self.of_shape(kind.shape, self.one_of(fitting[-4:])) if fitting else None
            made = number if made is None else made
            outputs.append(self.clamped(made) if self.kinds[made].bound > _BOUND and kind.dtype == "f32" else made)
        inner = Body(tuple(arguments), tuple(self.steps), tuple(outputs))
        self.scope, self.scalars, self.steps = scope, scalars, steps
        return inner

    def region(self) -> None:
        """Draws a loop, a branch or a block."""
        op = self.one_of(("loop", "loop", "branch", "block"))
        chosen = [self.tensor() for _ in range(self.whole(1, 3 if op == "loop" else 2))]
        wanted = [
            self.clamped(x) if self.kinds[x].bound > _BOUND and self.kinds[x].dtype == "f32" else x for x in chosen
        ]
        kinds = [_Kind(self.kinds[x].shape, self.kinds[x].dtype, _BOUND) for x in wanted]
        if op == "loop":
            arguments = [self.value(_Kind((), "i32", 3)), *map(self.value, kinds)]
            bodies = (self.body(arguments, arguments[1:], self.whole(1, 3)),)
            operands, attributes = wanted, (self.whole(1, 3),)
        elif op == "branch":
            bodies = tuple(self.body((), wanted, self.whole(0, 2)) for _ in range(2))
            operands, attributes = [self.one_of(self.scalars[:2])], (self.whole(0, 1),)
        else:
            bodies = (self.body((), wanted, self.whole(1, 3)),)
            operands, attributes = [], (f"layers.{self.whole(0, 2)}",)
        results = [self.value(kind) for kind in kinds]
        self.steps.append(Step(op, tuple(operands), attributes, tuple(results), bodies))
        self.scope += results

    def step(self, deep: bool = True) -> None:
        """Draws a step, with the steps that make its operands."""
        way = self.rng.random()
        if deep and way < 0.22:
            self.region()
        elif way < 0.7:
            self.scope.append(self.update())
        elif way < 0.82:
            self.scope.append(self.viewed(self.tensor()))
        else:
            x = self.tensor()
            self.scope.append(self.worked(x, self.tensor()))


def _used(step: Step) -> Iterator[int]:
    """Yields the values that a step takes, also inside of its bodies."""
    yield from step.operands
    for body in step.bodies:
        yield from body.outputs
        for inner in body.steps:
            yield from _used(inner)


def pruned(body: Body) -> Body:
    """Returns a body without the steps that no output needs."""
    needed, kept = set(body.outputs), []
    for step in reversed(body.steps):
        if needed.intersection(step.results):
            whole = step._replace(bodies=tuple(map(pruned, step.bodies)))
            kept.append(whole)
            needed.update(_used(whole))
    return body._replace(steps=tuple(reversed(kept)))


def _shapes_of(size: int) -> list[tuple[int, ...]]:
    """Returns shapes of rank 1 to 3 with so many elements."""
    pairs = [(a, size // a) for a in range(1, size + 1) if size % a == 0]
    return [
        (size,),
        *pairs,
        *((1, a, b) for a, b in pairs),
        *((a, 1, b) for a, b in pairs),
        *((a, 2, b // 2) for a, b in pairs if b % 2 == 0),
    ]


def drawn_program(seed: int) -> UpdateProgram:
    """Returns the program of a seed."""
    rng = np.random.default_rng([2026, seed])
    drawer = _Drawer(rng)
    rows, columns = drawer.whole(3, 8), drawer.whole(1, 6)
    shapes = [(rows, columns), drawer.one_of(((rows, columns), (columns, rows), (1, rows, columns), (rows * columns,)))]
    inputs: list[Array] = [rng.integers(-9, 10, shape).astype(np.float32) for shape in shapes]
    numbers = [drawer.value(_Kind(shape)) for shape in shapes]
    if drawer.chance(0.3):
        shape = (drawer.whole(1, 3), drawer.whole(3, 6))
        inputs.append(rng.integers(0, 10, shape).astype(np.int32))
        numbers.append(drawer.value(_Kind(shape, "i32")))
    drawer.scope = list(numbers)
    for _ in range(2):
        inputs.append(np.array(drawer.whole(0, 2), np.int32))
        numbers.append(drawer.value(_Kind((), "i32", 2)))
    drawer.scalars = numbers[-2:]
    if drawer.chance(0.4):  # an update of a computed value
        drawer.scope.append(drawer.worked(numbers[0], numbers[1]))
    for _ in range(drawer.one_of((1, 1, 2, 2, 3, 4))):
        drawer.step()
    made = [number for step in drawer.steps for number in step.results if drawer.kinds[number].shape]
    last = drawer.scope[-1]
    if drawer.chance(0.3):
        last = drawer.viewed(last)
    unused = set(made) - {number for step in drawer.steps for number in _used(step)}
    outputs = [last, *sorted(unused)[-3:]]
    for _ in range(drawer.one_of((0, 0, 1, 2))):
        outputs.append(drawer.one_of(made or numbers[:2]) if drawer.chance(0.85) else drawer.one_of(numbers[:2]))
    outputs = list(dict.fromkeys(outputs))
    donated: dict[int, int] = {}
    for place, number in enumerate(numbers[:-2]):
        kind = drawer.kinds[number]
        fitting = [
            i
            for i, output in enumerate(outputs)
            if (drawer.kinds[output].shape, drawer.kinds[output].dtype) == (kind.shape, kind.dtype)
            and i not in donated.values()
        ]
        if fitting and drawer.chance(0.6):
            donated[place] = drawer.one_of(fitting)
    body = pruned(Body(tuple(numbers), tuple(drawer.steps), tuple(outputs)))
    program = UpdateProgram(tuple(inputs), body, tuple(donated.items()))
    return _with_constant(program, seed // 4 % 2) if seed % 4 == 3 else program


def _with_constant(program: UpdateProgram, place: int) -> UpdateProgram:
    """Returns a program with a constant instead of an argument."""
    body, inputs = program.body, program.inputs
    constant = Step("constant", (), (inputs[place].tolist(),), (body.arguments[place],))
    arguments = body.arguments[:place] + body.arguments[place + 1 :]
    donated = tuple((taken - (taken > place), output) for taken, output in program.donated if taken != place)
    body = pruned(Body(arguments, (constant, *body.steps), body.outputs))
    return UpdateProgram(inputs[:place] + inputs[place + 1 :], body, donated)
