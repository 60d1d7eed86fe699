"""What an entry point takes and returns."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Final, Literal

from lang_core import DeviceError, OpError, TensorSpec

_DECLARATION: Final = re.compile(r"^\w+ func @[^(]*\((?P<arguments>.*)\) -> \((?P<results>.*)\)$", re.DOTALL)
_VALUE: Final = re.compile(r"%(?P<name>\w+): (?P<type>tensor<[^>]*>|[\w.]+)(?: \{(?P<attributes>[^}]*)\})?")
_ENCODING: Final = re.compile(r"iree\.abi\.encoding = (tensor<[^>]*>)")
_ALIAS: Final = re.compile(r"iree\.abi\.output = (\d+)")
_NAMES: Final = {"ui8": "u8", "i1": "bool"}  # MLIR's name of a dtype where it is not ours


@dataclasses.dataclass(frozen=True)
class ArgumentSpec:
    """One argument of an entry point.

    Attributes:
        name: for messages.
        spec: the tensor's; of a scalar: shape () and its dtype.
        kind: a scalar is passed as a Python number, not as a tensor.
        donated: the call takes the buffer over: the handle passed is dead afterwards.
        alias_result: the index of the result that comes back in this argument's buffer.
        hazard: the compiled code may write into this argument though it is not donated (it reaches a
            ``dynamic_update_slice`` or ``scatter``): a handle's buffer is copied before the call.
        bounds: the least and the greatest number that it may hold.
    """

    name: str
    spec: TensorSpec
    kind: Literal["tensor", "scalar"] = "tensor"
    donated: bool = False
    alias_result: int | None = None
    hazard: bool = False
    bounds: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class ResultSpec:
    """One result of an entry point.

    Attributes:
        name: for messages.
        spec: the tensor's.
    """

    name: str
    spec: TensorSpec


@dataclasses.dataclass(frozen=True)
class Signature:
    """An entry point's arguments and results, in order."""

    arguments: tuple[ArgumentSpec, ...]
    results: tuple[ResultSpec, ...]

    def __post_init__(self) -> None:
        """Refuses an alias of other bytes: IREE compiles it and fails in the call.

        Raises:
            DeviceError: an alias names no result, or one of another shape or dtype, or one named already.
        """
        taken: dict[int, str] = {}
        for argument in self.arguments:
            index = argument.alias_result
            if index is None:
                continue
            if not 0 <= index < len(self.results):
                raise DeviceError(
                    f"argument {argument.name!r} aliases result {index}, found {len(self.results)} results; "
                    f"fix the bundle's signature"
                )
            result = self.results[index]
            if result.spec != argument.spec or not argument.donated or index in taken:
                state = "donated" if argument.donated else "not donated"
                other = f", as does {taken[index]!r}" if index in taken else ""
                raise DeviceError(
                    f"argument {argument.name!r} ({argument.spec}, {state}) aliases result {result.name!r} "
                    f"({result.spec}){other}: an alias has its result's shape and dtype, is donated, and is the "
                    f"only one; export again"
                )
            taken[index] = argument.name


def signature_of_reflection(entry_point: str, reflection: Mapping[str, str]) -> Signature:
    """Reads a signature from what IREE keeps in the compiled module.

    It does not tell which arguments are written in place, so every tensor that is not donated counts as a hazard.

    Args:
        entry_point: for messages.
        reflection: of the module's function.

    Raises:
        DeviceError: there is none, or a type in it is not static or not one of ours.
    """
    declaration = reflection.get("iree.abi.declaration", "")
    parts = _DECLARATION.match(declaration)
    if parts is None:
        raise DeviceError(
            f"entry point {entry_point!r} has no declaration in its reflection, found {declaration!r}; "
            f"hand its signature to the session"
        )
    arguments = []
    for match in _VALUE.finditer(parts["arguments"]):
        spec, is_tensor = _spec(entry_point, match)
        alias = _ALIAS.search(match["attributes"] or "")
        index = int(alias[1]) if alias else None
        arguments.append(
            ArgumentSpec(
                name=match["name"],
                spec=spec,
                kind="tensor" if is_tensor else "scalar",
                donated=alias is not None,
                alias_result=index,
                hazard=is_tensor and alias is None,
            )
        )
    results = [ResultSpec(match["name"], _spec(entry_point, match)[0]) for match in _VALUE.finditer(parts["results"])]
    return Signature(tuple(arguments), tuple(results))


def _spec(entry_point: str, match: re.Match[str]) -> tuple[TensorSpec, bool]:
    """Returns the spec of a declared value, and whether it is a tensor."""
    encoding = _ENCODING.search(match["attributes"] or "")
    text = encoding[1] if encoding else match["type"]
    is_tensor = text.startswith("tensor<")
    *dims, dtype = (text[len("tensor<") : -1] if is_tensor else text).split("x")
    try:
        return TensorSpec(tuple(map(int, dims)), _NAMES.get(dtype, dtype)), is_tensor
    except (OpError, ValueError) as error:
        raise DeviceError(
            f"entry point {entry_point!r}: value {match['name']!r} has type {text!r}, "
            f"which a session cannot pass; static shapes of our dtypes are supported"
        ) from error
