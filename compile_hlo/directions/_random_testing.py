"""Random programs that update what they are given, directly, in loops, branches and blocks; only tests import this."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lang_core import Argument, EntryPoint, TensorSpec

X, ROW = TensorSpec((4, 6), "f32"), TensorSpec((1, 6), "f32")
TENSORS: Final = ("x", "y", "z")


def _like_x(c: Any, x: Any) -> Any:
    return c.ops.reshape(x, X.shape)


def _update(c: Any, x: Any, row: Any, at: Any) -> Any:
    return c.ops.dynamic_update_slice(x, row, [at, 0])


def _reshaped_update(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    x = c.ops.reshape(x, (4, 1, 6))
    return _like_x(c, c.ops.dynamic_update_slice(x, c.ops.reshape(row, (1, 1, 6)), [at, 0, 0]))


def _scatter(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    return c.ops.scatter(x, c.ops.broadcast(at, (1, 6)), row, 0, "add")


def _put(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    x = c.ops.reshape(x, (2, 2, 6))
    return _like_x(c, c.ops.put(x, c.ops.broadcast(at, (2, 1)), c.ops.broadcast(row, (2, 1, 6)), 1))


def _loop(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    """After some rounds x is where y was."""
    return c.ops.fori_loop(3, lambda i, v, w: (w, _update(c, v, row, i)), (y, x))[0]


def _loop_of_three(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    """After two rounds x is where y was."""
    turned = lambda i, v, w, u: (w, u, _update(c, v, row, i))  # noqa: E731
    return c.ops.fori_loop(3, turned, (y, c.ops.exp(y), x))[0]


def _captured(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    return c.ops.fori_loop(2, lambda i, v: (c.ops.add(v, _update(c, x, row, i)),), (y,))[0]


def _branch(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    return c.ops.cond(c.ops.less(at, 2), lambda: (_update(c, x, row, at),), lambda: (y,))[0]


def _either(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    return _update(c, c.ops.cond(c.ops.less(at, 2), lambda: (x,), lambda: (c.ops.exp(y),))[0], row, at)


def _all_replaced(c: Any, x: Any, y: Any, row: Any, at: Any) -> Any:
    return c.ops.dynamic_update_slice(x, y, [at, 0])


STEPS: Final[tuple[Callable[..., Any], ...]] = (
    *(_reshaped_update, _scatter, _put, _loop, _loop_of_three, _captured, _branch, _either, _all_replaced),
    lambda c, x, y, row, at: _update(c, x, row, at),
    lambda c, x, y, row, at: c.ops.add(c.ops.exp(x), y),
    lambda c, x, y, row, at: _update(c, c.ops.mul(x, y), row, at),
    lambda c, x, y, row, at: c.ops.slice(x, (0, 0), X.shape),
    lambda c, x, y, row, at: _like_x(c, c.ops.transpose(c.ops.reshape(x, (4, 1, 6)), (1, 0, 2))),
    lambda c, x, y, row, at: _like_x(c, c.ops.transpose(c.ops.reshape(x, (6, 4)), (1, 0))),
    lambda c, x, y, row, at: c.ops.reverse(x, (0,)),
    lambda c, x, y, row, at: c.ops.concat((c.ops.slice(y, (0, 0), (2, 6)), c.ops.slice(x, (2, 0), (4, 6))), 0),
)


class Program(NamedTuple):
    """Steps of (kind, operand, operand, block), and as bits the steps that are no output and the donated arguments."""

    steps: tuple[tuple[int, int, int, int], ...]
    dropped: int
    donated: int

    def fn(self, ctx: Any, x: Any, y: Any, z: Any, row: Any, at: Any) -> dict[str, Any]:
        """Runs the steps; a block is one of a few kinds, each of which is called often."""
        pool = [x, y, z]
        for number, (what, a, b, block) in enumerate(self.steps):
            one, other = pool[a % len(pool)], pool[b % len(pool)]
            if block % 3:  # few kinds, so that there are often several calls of one
                with ctx.block(f"kind.{number}"):
                    pool.append(STEPS[what % 3](ctx, one, other, row, at))
            else:
                pool.append(STEPS[what % len(STEPS)](ctx, one, other, row, at))
        return {f"out{i}": pool[3 + step] for i, step in enumerate(self._outputs())}

    def _outputs(self) -> list[int]:
        """Returns the steps whose results are outputs: always the last one."""
        return [i for i in range(len(self.steps)) if i == len(self.steps) - 1 or not self.dropped >> i & 1]

    def entry_point(self, name: str = "main") -> EntryPoint:
        """Returns the program as an entry point with as many donated arguments as there are results for them."""
        names = [f"out{i}" if i < len(self._outputs()) and self.donated >> i & 1 else None for i in range(3)]
        tensors = [Argument(tensor, X, alias_result=taken) for tensor, taken in zip(TENSORS, names, strict=True)]
        rest = (Argument("row", ROW), Argument("at", TensorSpec((), "i32"), "scalar"))
        return EntryPoint(name, self.fn, (*tensors, *rest))
