"""Values of arguments as JSON texts and keys: equal for values that behave alike, in any process."""

import contextlib
import dataclasses
import dis
import enum
import functools
import hashlib
import json
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from autotune.kernel._errors import KernelError
from autotune.kernel._jax_arrays import is_jax, is_tracer
from autotune.kernel._specs import is_array, map_arrays, spec_of
from lang_core import DType, EagerTensor, ExecutionContext, Tensor

_PLAIN: Final = frozenset((bool, int, str, type(None)))
_DESCRIPTORS: Final = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
# Steps of Python's bytecode that read or write a global.
_GLOBAL_STEPS: Final = frozenset(
    ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL")
)
# Text of an object that names its place in memory, which another process does not share.
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+")


class _ArrayPlace:
    """Place of an array in a tree of static values."""

    def __repr__(self) -> str:
        return "'*'"

    def __deepcopy__(self, memo: Any) -> "_ArrayPlace":
        return self


ARRAY: Final = _ArrayPlace()
"""Stands for an array in a tree of static values; no argument of a caller is this object."""


def statics_of(tree: Any) -> Any:
    """Returns a tree with ``ARRAY`` in place of arrays."""
    return map_arrays(lambda _: ARRAY, tree)


def stable_json(value: Any) -> str:
    """Returns a text that is the same for equal values, in any process.

    Raises:
        KernelError: a value cannot be described for other processes.
    """
    return json.dumps(describe(value), sort_keys=True, separators=(",", ":"))


def short_hash(value: Any) -> str:
    """Returns 16 hexadecimal digits of the hash of a value's ``stable_json``."""
    return hashlib.sha256(stable_json(value).encode()).hexdigest()[:16]


def describe(value: Any) -> Any:
    """Returns a value as JSON values, different for values that behave differently; arrays by their specs.

    Functions are described by their code, defaults, closures, and the globals that they use.

    Raises:
        KernelError: another process would not understand a value of this type.
    """
    return _Describer().of(value)


def exact_key(value: Any) -> Any:
    """Returns a key of a static value in this process: equal only if both values have the same content now.

    Unlike ``describe`` it counts the data of arrays, and describes objects of any class by their attributes.
    """
    return _exact_key(value, ordered=False)


def ordered_key(value: Any) -> Any:
    """Returns the same as ``exact_key`` for values in which the order of a mapping's keys counts too."""
    return _exact_key(value, ordered=True)


def _exact_key(value: Any, *, ordered: bool) -> Any:
    try:
        quick = quick_key(value, data=True)
    except TypeError:
        pass
    else:
        if ordered or not _has_mapping(value):
            return quick
    describer = _Describer(exact=True, ordered=ordered)
    text = json.dumps(describer.of(value), sort_keys=not ordered, separators=(",", ":"))
    return text, tuple(describer.opaque)


def _has_mapping(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list | tuple) and any(map(_has_mapping, value))


class Same:
    """Object compared by identity alone."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


class _Opaque:
    """Object without a description, compared by itself: by its own ``==``, and never equal to one of another class."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Opaque) or type(self._value) is not type(other._value):
            return False
        return self._value is other._value or self._value == other._value

    def __hash__(self) -> int:
        return hash(type(self._value))


class _Describer:
    """Description of one value; it knows the functions, classes and objects that it is inside of.

    Args:
        exact: whether the data of arrays count, and every object has a description in this process.
        ordered: whether the order of a mapping's keys counts.

    Attributes:
        opaque: objects without a description, if exact; the description has their numbers.
    """

    def __init__(self, exact: bool = False, ordered: bool = False) -> None:
        self._exact, self._ordered = exact, ordered
        self._inside: list[int] = []
        self.opaque: list[_Opaque] = []

    def of(self, value: Any) -> Any:
        """Returns the description of a value."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return {"float": value.hex() if value == value else "nan"}
        if value is ARRAY:
            return {"array": ""}
        if isinstance(value, enum.Enum):  # before numbers and strings, because a member may also be one
            return {"enum": self._class(kind), "name": value.name, "value": self._within(value, self._enum_value)}
        if isinstance(value, ExecutionContext):
            return {"context": ""}
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, np.dtype):
            plain = value.isnative and value.names is None and value.subdtype is None
            return {"dtype": value.name if plain else repr(value)}
        if isinstance(value, DType):
            return {"dtype": value.name}
        if isinstance(value, type):
            return {"type": self._class(value)}
        if is_array(value):
            return self._array(value)
        return self._object(value)

    def _enum_value(self, value: enum.Enum) -> Any:
        try:
            return self.of(value.value)
        except KernelError:  # the name says which member it is
            return None

    def _within(self, value: Any, function: Callable[[Any], Any]) -> Any:
        """Returns ``function(value)``; a value that holds itself is described by how far outside it stands."""
        if id(value) in self._inside:
            return {"around": len(self._inside) - self._inside.index(id(value))}
        self._inside.append(id(value))
        try:
            return function(value)
        finally:
            self._inside.pop()

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        pairs = self._within(value, lambda value: [[self.of(k), self.of(v)] for k, v in value.items()])
        return {"mapping": pairs if self._ordered or isinstance(pairs, dict) else sorted(pairs, key=json.dumps)}

    def _array(self, value: Any) -> Any:
        spec = spec_of(value)
        fields: list[Any] = [list(spec.shape), spec.dtype]
        if not self._exact:
            return {"array": fields}
        data = value.data if isinstance(value, EagerTensor) else value
        if isinstance(data, Tensor) or is_tracer(data):
            return self._opaque(value)
        if isinstance(data, np.ndarray | np.generic) or is_jax(data):
            array = np.asarray(data)
            fields.append(self.of(array.tolist()) if array.dtype.hasobject else _digest(array.tobytes()))
        return {"array": fields}

    def _object(self, value: Any) -> Any:
        kind = type(value)
        name = self._class(kind)
        if isinstance(value, list | tuple):
            plain = kind is list or kind is tuple
            return {kind.__name__ if plain else _text(name): self._within(value, self._parts)}
        if isinstance(value, set | frozenset):
            return {"set": sorted((self.of(part) for part in value), key=json.dumps)}
        if isinstance(value, slice):
            return {"slice": [self.of(part) for part in (value.start, value.stop, value.step)]}
        if isinstance(value, bytes | complex | range | type(...)):
            return {kind.__name__: repr(value)}
        if isinstance(value, int | float | str):  # of a class of their own
            base = next(base for base in (int, float, str) if isinstance(value, base))
            return {_text(name): self.of(base(value)), "attributes": self._attributes(value)}
        if dataclasses.is_dataclass(value):
            return {_text(name): self._within(value, self._fields)}
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return {"partial": self._within(value, lambda _: [self.of(part) for part in parts])}
        if isinstance(value, types.FunctionType):
            return self._within(value, self.function)
        if isinstance(value, types.MethodType):
            return {"method": self.of(value.__func__), "of": self.of(value.__self__)}
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType | None):
            return {"builtin": f"{value.__module__}.{value.__qualname__}"}
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            return {"builtin": value.__name__, "of": self._within(value, lambda value: self.of(value.__self__))}
        if isinstance(value, _DESCRIPTORS):
            return {"builtin": value.__name__, "of": self.of(value.__objclass__)}
        if isinstance(value, np.ufunc):
            return {"builtin": f"numpy.{value.__name__}"}
        if hasattr(value, "model_dump"):
            return {_text(name): self.of(value.model_dump())}
        if not self._exact:
            raise KernelError(
                f"the argument {value!r} of type {_plain_name(kind)} cannot be part of a key that other processes "
                f"understand: pass numbers, strings, dtypes, tuples or dataclasses, or give the kernel a key_builder"
            )
        return self._within(value, self._content)

    def _content(self, value: Any) -> Any:
        """Returns the description of an object: its attributes, or the state that ``copy`` uses."""
        kind = type(value)
        attributes = _attributes_of(value)
        if attributes and kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__:
            return {_text(self._class(kind)): self._mapping(attributes)}
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001 - an object of any class, such as a lock or a generator
            parts = None
        if not attributes and (parts is None or parts[1:] == ((kind,), None, None, None)):
            return self._opaque(value)
        made = [list(part) if isinstance(part, Iterator) else part for part in parts or ()]
        return {_text(self._class(kind)): [self.of(made), self._mapping(attributes)]}

    def _opaque(self, value: Any) -> Any:
        self.opaque.append(_Opaque(value))
        return {"object": len(self.opaque)}

    def _parts(self, value: Any) -> Any:
        return [self.of(part) for part in value]

    def _fields(self, value: Any) -> Any:
        names = [field.name for field in dataclasses.fields(value)]
        if self._exact:  # attributes that are no fields, too
            names = list(dict.fromkeys([*names, *_attributes_of(value)]))
        return {name: self.of(getattr(value, name, None)) for name in names}

    def _attributes(self, value: Any) -> Any:
        attributes = getattr(value, "__dict__", None)
        return self._mapping(attributes) if attributes else None

    def _class(self, kind: type) -> Any:
        """Returns a class's name, and its content if the name alone does not lead to it."""
        name = _plain_name(kind)
        if kind.__module__ != "__main__" and _found(kind.__module__, kind.__qualname__) is kind:
            return name
        return {"class": name, "content": self._within(kind, self.content)}

    def content(self, kind: type) -> Any:
        """Returns the description of a class's bases, methods and plain attributes."""
        if issubclass(kind, enum.Enum):
            return {name: self._enum_value(member) for name, member in kind.__members__.items()}
        members: dict[str, Any] = {}
        for name, member in vars(kind).items():
            for function in functions_of(member):
                members[name] = [*members.get(name, []), self._within(function, self.function)]
            if name not in members and not name.startswith("__"):
                members[name] = self.value_or_name(member, f"{_plain_name(kind)}.{name}")
        bases = [self._class(base) for base in kind.__bases__ if base is not object]
        return {"members": members, "bases": bases}

    def function(self, function: types.FunctionType) -> Any:
        """Returns the description of a function: code, defaults, closure, attributes and used globals."""
        code = function.__code__
        parts = {
            "code": code_text(code),
            "values": self.values_of(function),
            "globals": self._globals(function),
            "attributes": {k: self.value_or_name(v, k) for k, v in vars(function).items() if k != "__wrapped__"},
        }
        return {"function": f"{function.__module__}.{function.__qualname__}", "code": self._short(parts)}

    def _short(self, parts: Any) -> Any:
        """Returns a hash in place of a long description; exact descriptions stay, for they count opaque objects."""
        return parts if self._exact else _digest(json.dumps(parts, sort_keys=True).encode())

    def values_of(self, function: types.FunctionType) -> Any:
        """Returns the description of a function's defaults and closure.

        Raises:
            KernelError: a value cannot be described.
        """
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        return {
            "defaults": self.of(function.__defaults__),
            "kwdefaults": self.of(function.__kwdefaults__),
            "closure": {name: self._cell(cell) for name, cell in cells},
        }

    def _cell(self, cell: Any) -> Any:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # not assigned yet
            return {"cell": ""}

    def _globals(self, function: types.FunctionType) -> Any:
        names, scope = names_of(function.__code__), function.__globals__
        return {name: self._global(function, name, scope[name]) for name in sorted(names) if name in scope}

    def _global(self, function: types.FunctionType, name: str, value: Any) -> Any:
        if isinstance(value, types.FunctionType | type) and not beside(value.__module__, function.__module__):
            return f"{value.__module__}.{value.__qualname__}"  # of another package, whose version is not a kernel's
        return self.value_or_name(value, f"{function.__module__}.{name}")

    def value_or_name(self, value: Any, name: str) -> Any:
        """Returns a value's description, or that of the place where it is found."""
        try:
            return self.of(value)
        except (KernelError, RecursionError):
            text = repr(value)
            return {"object": name if _ADDRESS.search(text) else text}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _plain_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _attributes_of(value: Any) -> dict[str, Any]:
    """Returns an object's own attributes, also those in slots."""
    attributes = getattr(value, "__dict__", None)
    own = dict(attributes) if type(attributes) is dict else {}
    for part in type(value).__mro__:
        for name, member in vars(part).items():
            if isinstance(member, types.MemberDescriptorType) and part.__module__ != "builtins":
                with contextlib.suppress(AttributeError):  # a slot that is empty
                    own.setdefault(name, member.__get__(value))
    return own


def _text(name: Any) -> str:
    return name if isinstance(name, str) else json.dumps(name, sort_keys=True)


def _found(module: str, path: str) -> Any:
    """Returns the object at a dotted path of a loaded module; None if it has nothing."""
    value: Any = sys.modules.get(module)
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def beside(module: str | None, other: str | None) -> bool:
    """Returns whether two modules are the same or in the same package."""
    package = (module or "").rpartition(".")[0]
    return module == other or (package != "" and package == (other or "").rpartition(".")[0])


def functions_of(member: Any) -> list[types.FunctionType]:
    """Returns the functions of a class's member: a function, or those of a method or property."""
    if isinstance(member, property):
        parts: list[Any] = [member.fget, member.fset, member.fdel]
    elif isinstance(member, functools.cached_property):
        parts = [member.func]
    else:
        parts = [getattr(member, "__func__", None) or getattr(member, "__wrapped__", member)]
    return [part for part in parts if isinstance(part, types.FunctionType)]


@functools.lru_cache(maxsize=1024)
def code_text(code: types.CodeType) -> str:
    """Returns a text of a code object's behaviour, the same in every process with this version of Python."""
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, arguments, code.co_freevars, code.co_cellvars)
    tables = (code.co_code.hex(), getattr(code, "co_exceptiontable", b"").hex())
    constants = [code_text(value) if isinstance(value, types.CodeType) else describe(value) for value in code.co_consts]
    return _digest(json.dumps([counts, names, tables, constants], sort_keys=True).encode())


@functools.lru_cache(maxsize=1024)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Returns the names of globals that a code object uses, and the code objects in it; names of attributes are none.

    >>> sorted(names_of((lambda x: len(x.size)).__code__))
    ['len']
    """
    inner = [names_of(value) for value in code.co_consts if isinstance(value, types.CodeType)]
    own = {step.argval for step in dis.get_instructions(code) if step.opname in _GLOBAL_STEPS}
    return frozenset(own).union(*inner)


def quick_key(value: Any, data: bool = False) -> Any:
    """Returns a hashable value, equal only for arguments with the same description; quicker than ``describe``.

    Args:
        value: any value.
        data: whether the data of arrays count: then arrays lack a quick key.

    Raises:
        TypeError: the value has none; use ``describe``.
    """
    kind = type(value)
    if kind is np.ndarray and not data:
        return value.shape, value.dtype
    if kind is tuple or kind is list:
        return (kind, *[quick_key(part, data) for part in value])
    if kind is int or kind is str or kind is bool or value is None:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is dict:
        return (dict, *[(quick_key(key), quick_key(part, data)) for key, part in value.items()])
    if value is ARRAY:
        return value
    if isinstance(value, Tensor) and not data:
        return Tensor, value.spec
    if is_jax(value) and not data:
        return kind, value.shape, value.dtype
    if isinstance(value, enum.Enum):  # members of two classes may be equal numbers
        return kind, value.name
    if isinstance(value, DType | np.dtype):
        return kind, value
    if isinstance(value, ExecutionContext):
        return None
    raise TypeError("no quick key")
