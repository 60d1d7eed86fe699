"""Caches, states, taps and bindings: arguments and results besides inputs and outputs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lang_core import Argument, ConfigError, ExecutionContext, Module, Repeated, Tensor, TensorSpec
from transformer_core.flow._profile import CompileProfile, Memory, Positions
from transformer_core.layers._cache import Cache, CacheLayout
from transformer_core.layers._kv_cache import KVCache, quantized_layout, ring_layout
from transformer_core.layers._position_cache import PositionCache

_CACHE = "_cache"


@runtime_checkable
class Remembering(Protocol):
    """Module with a cache or a state."""

    @property
    def path(self) -> str:
        """The module's path."""
        ...

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of its cache."""
        ...


@dataclass(frozen=True, slots=True)
class Tap:
    """Cache without storage: returns new keys and values, behind those of the past if there are any.

    Attributes:
        key: [B, K, T, H]; None before the run.
        value: as ``key``.
        past_key: [B, K, P, H], of earlier tokens; None without.
        past_value: as ``past_key``.
        tensors: new keys and values.
    """

    key: Tensor | None = None
    value: Tensor | None = None
    past_key: Tensor | None = None
    past_value: Tensor | None = None
    tensors: tuple[Tensor, ...] = ()

    def updated(self, ctx: ExecutionContext, key: Tensor, value: Tensor, places: object) -> "Tap":
        """Returns the tap with new keys and values [B, K, T, H], behind those of the past."""
        del places
        whole = key, value
        if self.past_key is not None and self.past_value is not None:
            whole = ctx.ops.concat((self.past_key, key), 2), ctx.ops.concat((self.past_value, value), 2)
        return Tap(*whole, tensors=(key, value))


@dataclass(frozen=True, slots=True)
class Slot:
    """Cache or state of one module.

    Attributes:
        path: path of the module.
        name: prefix of the names of its tensors, such as ``layers.3``.
        layout: layout of its tensors.
    """

    path: str
    name: str
    layout: CacheLayout

    @property
    def recurrent(self) -> bool:
        """True if it is a state."""
        return self.layout.recurrent


def slots_of(root: Module, profile: CompileProfile) -> tuple[Slot, ...]:
    """Returns the slots of the modules of a tree, in its order; none if the profile keeps nothing."""
    if profile.memory is Memory.NONE:
        return ()
    layouts = [
        (repeat, index, module.path, _layout(module, profile)) for repeat, index, module in _remembering(root, "", "")
    ]
    short = Counter(repeat.rpartition(".")[2] for repeat in {repeat for repeat, *_ in layouts if repeat})
    per_layer = Counter((repeat, index) for repeat, index, *_ in layouts)
    slots = []
    for repeat, index, path, layout in layouts:
        name = path
        if repeat:
            last = repeat.rpartition(".")[2]
            begin = last if short[last] == 1 else repeat
            name = f"{begin}.{index}"
            if per_layer[repeat, index] > 1:
                name += path.removeprefix(f"{repeat}.{index}")
        slots.append(Slot(path, name, layout))
    return tuple(slots)


def _layout(module: Remembering, profile: CompileProfile) -> CacheLayout:
    layout = module.cache_layout(profile.cache_rows or profile.batch, profile.page_tokens or profile.capacity)
    if profile.page_tokens is not None:
        layout = _paged(module, layout, profile)
    elif profile.ring_tokens is not None:
        layout = ring_layout(layout, profile.ring_tokens)
    if profile.kv_cache is None or layout.make is PositionCache:
        return layout
    return quantized_layout(layout, profile.kv_cache, module.path)


def _paged(module: Remembering, layout: CacheLayout, profile: CompileProfile) -> CacheLayout:
    if layout.specs and layout.make not in (KVCache, PositionCache):
        raise ConfigError(
            f"page_tokens: {module.path!r} keeps {', '.join(layout.specs)}, and pages hold keys and values alone: "
            f"leave pages out"
        )
    reach = None if layout.window is None else layout.window + (profile.ring_tokens or 0) - 1
    if profile.ring_tokens is not None and reach is not None and reach < profile.capacity:
        raise ConfigError(
            f"page_tokens: {module.path!r} sees {layout.window} keys and would keep a ring of {reach}, which has no "
            f"pages: choose window_caches=whole, or leave pages out"
        )
    return layout


def _remembering(module: Module, repeat: str, index: str) -> Iterator[tuple[str, str, Remembering]]:
    """Yields each module with a cache, after its outermost repetition and its index in that."""
    if isinstance(module, Remembering):
        yield repeat, index, module
        return
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        for place, child in enumerate(value if isinstance(value, list | tuple | Repeated) else (value,)):
            if isinstance(child, Module):
                repeated = isinstance(value, Repeated) and not repeat
                below = (child.path.rpartition(".")[0], str(place)) if repeated else (repeat, index)
                yield from _remembering(child, *below)


def memory_arguments(slots: tuple[Slot, ...], profile: CompileProfile) -> tuple[Argument, ...]:
    """Returns the arguments that hold caches, states and past keys and values."""
    if profile.memory is Memory.TAPS:
        return ()
    arguments = []
    for slot in slots:
        for part, spec in slot.layout.specs.items():
            if profile.memory is Memory.CACHES or slot.recurrent:
                name, axes = f"{slot.name}.{part}", slot.layout.axes.get(part)
                arguments.append(Argument(name, spec, alias_result=name, axes=axes))
            else:
                arguments.append(Argument(f"{slot.name}.past_{_kept(slot, part)}", spec))
    return tuple(arguments)


def _kept(slot: Slot, part: str) -> str:
    if not part.endswith(_CACHE):
        raise ConfigError(f"memory: the cache of {slot.path!r} has a part {part!r}, which is neither keys nor values")
    return part.removesuffix(_CACHE)


def incoming(
    ctx: ExecutionContext, slots: tuple[Slot, ...], profile: CompileProfile, tensors: Iterator[Tensor]
) -> dict[str, Cache]:
    """Returns the caches at the start of a run, by module path; ``tensors`` are those of ``memory_arguments``."""
    caches: dict[str, Cache] = {}
    for slot in slots:
        specs = slot.layout.specs.values()
        if slot.layout.owner is not None:
            caches[slot.path] = slot.layout.make()
        elif profile.memory is Memory.CACHES or (profile.memory is Memory.BINDINGS and slot.recurrent):
            caches[slot.path] = slot.layout.make(*[next(tensors) for _ in specs])
        elif slot.recurrent:
            caches[slot.path] = slot.layout.make(*[ctx.ops.zeros(spec.shape, spec.dtype) for spec in specs])
        elif profile.memory is Memory.TAPS:
            caches[slot.path] = Tap()
        else:
            key, value = (next(tensors) for _ in specs)
            caches[slot.path] = Tap(past_key=key, past_value=value)
    return caches


def outgoing(slots: tuple[Slot, ...], profile: CompileProfile, caches: Mapping[str, Cache]) -> dict[str, Tensor]:
    """Returns the results that hold caches, states and new keys and values, by name."""
    results: dict[str, Tensor] = {}
    for slot in slots:
        whole = profile.memory is Memory.CACHES or slot.recurrent
        for part, tensor in zip(slot.layout.specs, caches[slot.path].tensors, strict=True):
            results[f"{slot.name}.{part if whole else _kept(slot, part)}"] = tensor
    return results


def binding_arguments(
    windows: tuple[int | None, ...], rotated: int, local: int | None, profile: CompileProfile
) -> tuple[Argument, ...]:
    """Returns the arguments cos, sin and masks; ``rotated`` is R, ``local`` the R of a second RoPE."""
    rows = (profile.batch, profile.sequence) if profile.positions is Positions.PER_ROW else (profile.sequence,)
    specs = {name: TensorSpec((*rows, rotated), "f32") for name in ("cos", "sin")}
    if local is not None:
        specs |= {name: TensorSpec((*rows, local), "f32") for name in ("local_cos", "local_sin")}
    keys = profile.capacity + profile.sequence
    if profile.masked:
        specs |= {mask_name(window): TensorSpec((*rows, keys), "f32") for window in windows}
    return tuple(Argument(name, spec) for name, spec in specs.items())


def mask_name(window: int | None) -> str:
    """Returns the name of the argument with the mask of a window."""
    return "mask" if window is None else f"mask_{window}"
