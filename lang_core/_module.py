"""Modules: models as trees with stable paths."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, overload

from lang_core._context import ExecutionContext
from lang_core._errors import ConfigError, OpError
from lang_core._keywords import check_keywords
from lang_core._parameter import Named, Parameter
from lang_core._tensor import Tensor

_LISTS: Final = (list, tuple)


class Module(Named):
    """Part of a model. Attributes that are modules, parameters or sequences of modules form a tree.

    Subclasses define ``forward(ctx, ...)``; callers call the module. The path of a part is made of the
    attributes that lead to it from the root: ``model.layers.3.self_attn``.

    >>> class Scale(Module):
    ...     def __init__(self, size):
    ...         self.weight = Parameter((size,))
    ...     def forward(self, ctx, x):
    ...         return ctx.ops.mul(x, ctx.parameter(self.weight))
    >>> class Model(Module):
    ...     def __init__(self):
    ...         self.layers = [Scale(3), Scale(3)]
    >>> [path for path, _ in Model().named_parameters()]
    ['layers.0.weight', 'layers.1.weight']
    """

    _parent: Named | None = None
    _name: str = ""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name[:1] == "_":
            return
        if isinstance(value, Named):
            self._adopt(value, name)
        elif isinstance(value, _LISTS):
            for suffix, child in _children(value):
                self._adopt(child, name + suffix)

    def _adopt(self, child: Named, name: str) -> None:
        """Gives a part its path, unless it has one."""
        if child._parent is None and child is not self:
            object.__setattr__(child, "_parent", self)
            object.__setattr__(child, "_name", name)

    def __call__(self, ctx: ExecutionContext, *args: Any, **kwargs: Any) -> Any:
        """Runs ``forward`` with ``ctx.module_path`` set to this module's path.

        Arrays become tensors at this door, so ``forward`` gets tensors and gives tensors: a context that computes
        admits arrays among the arguments and the results, and in tuples of them. Python and NumPy scalars, lists and
        mappings stay as they are.
        """
        try:
            before = ctx.module_path
        except AttributeError:
            raise OpError(
                f"{type(self).__name__}: expected a context as the first argument; found a {type(ctx).__name__}: call "
                "module(ctx, x)"
            ) from None
        ctx.module_path = self.path
        try:
            if kwargs:
                kwargs = dict(zip(kwargs, ctx.admit_all(tuple(kwargs.values())), strict=True))
            for value in args:
                if not isinstance(value, Tensor):
                    args = ctx.admit_all(args)
                    break
            result = self.forward(ctx, *args, **kwargs)
            return result if isinstance(result, Tensor) else ctx.admit_all((result,))[0]
        except TypeError:
            check_keywords(self.forward, f"{type(self).__name__}.forward", kwargs)
            raise
        finally:
            ctx.module_path = before

    def forward(self, ctx: ExecutionContext, *args: Any, **kwargs: Any) -> Any:
        """Computes the module's results; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward(ctx, ...)")

    def visit(self, change: "Callable[[Module], None]") -> None:
        """Calls ``change`` on this module and on every one below it; on repeated ones each time they are made."""
        change(self)
        for name, value in vars(self).items():
            if isinstance(value, Repeated) and not name.startswith("_"):
                value.visit(change)
                continue
            for _, child in _children(value) if not name.startswith("_") else ():
                if isinstance(child, Module):
                    child.visit(change)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yields every parameter of the tree once, with its path, in the order of the attributes.

        Raises:
            ConfigError: a module was appended to a list that was an attribute already.
        """
        yield from self._walk(set())

    def _walk(self, seen: set[Named]) -> Iterator[tuple[str, Parameter]]:
        for name, value in vars(self).items():
            for _, child in _children(value) if not name.startswith("_") else ():
                if isinstance(child, Module) and isinstance(value, Repeated):
                    yield from child._walk(set(seen))  # made just now and gone soon: its identity says nothing later
                    continue
                if child in seen:
                    continue
                seen.add(child)
                if child._parent is None:
                    raise ConfigError(
                        f"module {self.path!r}: {name} holds a {type(child).__name__} that was put into the list after "
                        "that became an attribute, so it has no path: fill the list first, then assign it"
                    )
                if isinstance(child, Parameter):
                    yield child.path, child
                else:
                    yield from child._walk(seen)


class Repeated(Named, Sequence["Module"]):
    """Sequence of modules that are made on access, and not kept.

    A model of ten thousand layers is then as small as one of ten. Each access makes a new module, with the path of
    its place; so a module's identity, and assignments to its attributes, do not last.

    Args:
        count: number of modules.
        make: function that makes the module of an index.

    >>> class Model(Module):
    ...     def __init__(self):
    ...         self.layers = Repeated(3, lambda index: Module())
    >>> [layer.path for layer in Model().layers]
    ['layers.0', 'layers.1', 'layers.2']
    """

    def __init__(self, count: int, make: "Callable[[int], Module]") -> None:
        self._count = count
        self._make = make
        self._changes: list[Callable[[Module], None]] = []
        self._parent: Named | None = None
        self._name = ""

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> "Module": ...

    @overload
    def __getitem__(self, index: slice) -> "Sequence[Module]": ...

    def __getitem__(self, index: int | slice) -> "Module | Sequence[Module]":
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        place = range(self._count)[index]  # raises IndexError
        module = self._make(place)
        object.__setattr__(module, "_parent", self._parent)
        object.__setattr__(module, "_name", f"{self._name}.{place}")
        for change in self._changes:
            module.visit(change)
        return module

    def visit(self, change: "Callable[[Module], None]") -> None:
        """Registers ``change`` to be called on every module that will be made, and on those below it."""
        self._changes.append(change)


def _children(value: Any) -> Iterator[tuple[str, "Module | Parameter"]]:
    if isinstance(value, Module | Parameter):
        yield "", value
    elif isinstance(value, list | tuple | Repeated):
        for index, item in enumerate(value):
            if isinstance(item, Module | Parameter):
                yield f".{index}", item
