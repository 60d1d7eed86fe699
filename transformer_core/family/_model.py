"""Base class of all models: parameters, and entry points at fixed sizes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

from lang_core import ENCODINGS, ConfigError, DType, EntryPoint, Module, as_dtype, i8, near_names
from lang_core.ops import CACHE_ENCODINGS
from transformer_core._config_fields import ConfigFields
from transformer_core._names import ADAPTED, POSITIONS, WINDOW_CACHES
from transformer_core.checkpoints import RecipeOf
from transformer_core.family._packed_texts import packed_name
from transformer_core.family._row_copies import with_row_copies
from transformer_core.family._sentence import Pooling
from transformer_core.flow import CompileProfile, Memory

DEFAULT_SEQUENCE: Final = 64
"""Tokens that one call takes, where the caller does not say."""
SLOT_TOKENS: Final = 128
"""The most tokens that one call of ``prefill_row`` takes, where the caller does not say and caches hold so many."""

# Lengths of texts that entry points are made for by default: at most so many tokens, and so many attention scores of a
# text in a layer, N * T * T.
_LONGEST_TEXT: Final = 2048
_MOST_SCORES: Final = 2**26
_SHORTEST_BUCKET: Final = 32
_BUCKET_RATIO: Final = 4


class ModelConfig(Protocol):
    """Configuration of a model.

    Attributes:
        architecture: architecture of a registered family.
        layers: L.
        stored_layers: number of layers in checkpoints, including those that are not run.
    """

    @property
    def architecture(self) -> str: ...

    @property
    def layers(self) -> int: ...

    @property
    def stored_layers(self) -> int: ...

    def first_layers(self, count: int) -> Self:
        """Returns the configuration of a model of the first layers only."""
        ...

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        ...


ConfigT = TypeVar("ConfigT", bound=ModelConfig)


class Model(Module, ABC, Generic[ConfigT]):
    """Model of any family, decoder or not; its family's checkpoints are read into its parameters by path.

    Args:
        config: configuration of the model.
        dtype: dtype of parameters and activations. With f16 and bf16, norms and softmax are computed in f32.
        num_layers: number of first layers to run; all if None.

    Attributes:
        config: configuration with the layers that are run.
        dtype: dtype of parameters and activations.
        stored_layers: number of layers in its checkpoints.
        copies: path of another parameter by the path of each parameter that checkpoints may store as that one alone.
        ENTRY_POINTS: names of the entry points.
        DEFAULT_ENTRY_POINTS: names of those that are exported by default.

    Raises:
        ConfigError: ``num_layers`` is out of range, or the dtype is not floating.
    """

    ENTRY_POINTS: ClassVar[tuple[str, ...]] = ("forward",)
    DEFAULT_ENTRY_POINTS: ClassVar[tuple[str, ...]] = ("forward",)

    def __init__(self, config: ConfigT, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        self.stored_layers = config.stored_layers
        self.copies: dict[str, str] = {}
        if num_layers is not None:
            if not 1 <= num_layers <= config.layers:
                raise ConfigError(
                    f"num_layers: expected 1 to {config.layers}, the layers of the model; found {num_layers}"
                )
            config = config.first_layers(num_layers)
        self.config: ConfigT = config
        self.dtype = as_dtype(dtype)
        if not self.dtype.is_floating:
            raise ConfigError(
                f"dtype: expected f32, bf16, f16 or f64, for activations are fractions; found {self.dtype}"
            )

    @abstractmethod
    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the model's sizes; fills in unspecified ones.

        Raises:
            ConfigError: a size is out of the model's range.
        """

    def text_lengths(self, limit: int | None) -> tuple[int, ...]:
        """Returns the numbers of tokens, ascending, that ``forward`` takes if the caller names none.

        Models that embed, rank or classify whole texts have some: one entry point for each length, so that short texts
        need not be padded to the longest. Other models have none, and ``default_profile`` decides.

        Args:
            limit: the most tokens of a text that the model's other files say; None if they say nothing.
        """
        del limit
        return ()

    def packed_lengths(self, longest: int) -> tuple[int, ...]:
        """Returns the numbers of tokens, ascending, of the entry points that take several texts in one row.

        Args:
            longest: the most tokens of a text, T of ``forward``.
        """
        del longest
        return ()

    def profile(
        self, name: str, sizes: CompileProfile, *, positions: str, window_caches: str, verify_tokens: int | None
    ) -> CompileProfile:
        """Returns the profile of an entry point; here of a model without caches.

        Args:
            name: one of ``ENTRY_POINTS``.
            sizes: from ``default_profile``.
            positions: as for ``entry_points``.
            window_caches: as for ``entry_points``.
            verify_tokens: as for ``entry_points``.

        Raises:
            ConfigError: the model does not support these positions or caches.
        """
        del window_caches
        for option, value, plain in (("positions", positions, POSITIONS[0]), ("verify_tokens", verify_tokens, None)):
            if value != plain:
                raise ConfigError(
                    f"{option}: expected {plain}, for {self.config.architecture} has no caches; found {value}"
                )
        return replace(sizes, name=name)

    def slot_profiles(
        self, slots: int, sizes: CompileProfile, *, window_caches: str, verify_tokens: int | None
    ) -> tuple[CompileProfile, ...]:
        """Returns the profiles of the entry points that work on some of ``slots`` rows of caches; here there are none.

        Args:
            slots: number of rows.
            sizes: from ``default_profile``; T is the most tokens that a call appends.
            window_caches: as for ``entry_points``.
            verify_tokens: as for ``entry_points``.

        Raises:
            ConfigError: the model lacks caches.
        """
        del slots, sizes, window_caches, verify_tokens
        raise ConfigError(
            f"slots: expected none, for {self.config.architecture} has no caches whose rows requests could share"
        )

    @abstractmethod
    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds an entry point; the profile's name is one of ``ENTRY_POINTS``."""

    def tied(self) -> dict[str, str]:
        """Returns names under which checkpoints may store a parameter once more, each with its path."""
        return {}

    def untied(self) -> dict[str, str]:
        """Returns paths of parameters that other checkpoints tie, each with its name in ``tied`` there."""
        return {}


def entry_points(
    model: Model[Any],
    *,
    names: Sequence[str] | None = None,
    batch: int = 1,
    sequence: int | None = None,
    max_sequence: int | None = None,
    positions: str = "shared",
    window_caches: str = "whole",
    verify_tokens: int | None = None,
    slots: int | None = None,
    pages: tuple[int, int] | None = None,
    kv_cache: str | None = None,
    adapter_rank: int | None = None,
    lengths: Sequence[int] = (),
    packed: Sequence[int] = (),
) -> tuple[EntryPoint, ...]:
    """Builds entry points of a model at fixed sizes; the docstring of its class lists them with arguments and results.

    Args:
        model: the model.
        names: names of the entry points, each once; the model's default if None.
        batch: B.
        sequence: T, the tokens that one call takes; the model's default if None.
        max_sequence: S, the capacity of caches; the model's default if None.
        positions: ``shared`` by all sequences of a batch, or ``per_row``.
        window_caches: caches of layers with windows, ``whole`` or ``ring``.
        verify_tokens: number of tokens that one call of ``verify`` takes; T if None. With ``slots``, that of
            ``verify_row``, which there is only if it is given.
        slots: number of rows of caches, for a server that decodes as many sequences at once: the entry points are then
            those of ``slot_entry_points``, and T the most tokens that a call of ``prefill_row`` takes.
        pages: number of pages that the caches are, and positions of each, which rows then share; None for whole rows.
        kv_cache: encoding that keys and values are packed in when they are appended to caches, ``q8_0`` or ``q4_0``;
            None for the model's dtype.
        adapter_rank: ranks of LoRA adapters that sequences may have, each its own; every entry point of ``slots``
            that runs tokens is then there twice, a second time as ``adapted_..`` with adapters. None without.
        lengths: further, shorter T of ``forward``, each an entry point ``forward_T``.
        packed: T of rows of several texts, each an entry point ``packed_T``; see ``Model.packed_lengths``.

    Raises:
        ConfigError: a name is unknown or repeated, a size is out of range, or the model does not support these caches.
    """
    _check_choice("positions", positions, POSITIONS)
    _check_choice("window_caches", window_caches, WINDOW_CACHES)
    sizes = model.default_profile(batch, sequence, max_sequence)
    if slots is not None:
        plain = batch == 1 and positions == POSITIONS[0] and names is None
        if not plain:
            raise ConfigError(
                "slots: the entry points of slots have names, batches and positions of their own: leave out names, "
                "batch and positions"
            )
        profiles = model.slot_profiles(slots, sizes, window_caches=window_caches, verify_tokens=verify_tokens)
        if pages is not None:
            _check_pages(*pages, slots, sizes)
            profiles = [_paged(profile, *pages) for profile in profiles]
        if adapter_rank is not None:
            profiles = [*profiles, *_adapted(model, profiles, adapter_rank)]
        points = _built(model, profiles, kv_cache)
        return with_row_copies(points, pages[0] if pages else slots)
    chosen = model.DEFAULT_ENTRY_POINTS if names is None else names
    _check_names(model.ENTRY_POINTS, chosen)
    options: Any = {"positions": positions, "window_caches": window_caches, "verify_tokens": verify_tokens}
    profiles = [model.profile(name, sizes, **options) for name in chosen]
    if "forward" in chosen:
        forward = profiles[list(chosen).index("forward")]
        profiles += [replace(forward, name=f"forward_{length}", sequence=length) for length in lengths]
        profiles += [replace(forward, name=packed_name(length), batch=1, sequence=length) for length in packed]
    return tuple(_built(model, profiles, kv_cache))


def _built(model: Model[Any], profiles: Iterable[CompileProfile], kv_cache: str | None) -> list[EntryPoint]:
    """Returns the entry points of profiles; with an encoding, those with caches keep packed keys and values.

    Raises:
        ConfigError: the encoding is unknown, or no entry point has caches that can be packed.
    """
    if kv_cache is None:
        return [model.entry_point(profile) for profile in profiles]
    _check_choice("kv_cache", kv_cache, CACHE_ENCODINGS)
    encoding = ENCODINGS[kv_cache]
    points = [
        model.entry_point(replace(profile, kv_cache=encoding) if profile.memory is Memory.CACHES else profile)
        for profile in profiles
    ]
    if not any(argument.spec.dtype is i8 and argument.alias_result for point in points for argument in point.arguments):
        raise ConfigError(
            f"kv_cache={kv_cache}: {model.config.architecture} has no caches of keys and values that can be quantized: "
            f"leave out kv_cache"
        )
    return points


def buckets(longest: int, heads: int) -> tuple[int, ...]:
    """Returns lengths of texts that entry points are made for, ascending up to ``longest``.

    The last is less than ``longest`` if the attention scores of a longer text would be too many.

    >>> buckets(512, 12), buckets(40, 12), buckets(8192, 12)
    ((32, 128, 512), (40,), (32, 128, 512, 2048))
    """
    most = min(longest, _LONGEST_TEXT)
    while most > _SHORTEST_BUCKET and heads * most * most > _MOST_SCORES:
        most //= 2
    lengths, length = [most], _SHORTEST_BUCKET
    while length * 2 <= most:
        lengths.append(length)
        length *= _BUCKET_RATIO
    return tuple(sorted(lengths))


def _check_pages(pages: int, page_tokens: int, slots: int, sizes: CompileProfile) -> None:
    of_row = -(-sizes.capacity // page_tokens)
    least = of_row + slots
    if pages < least:
        raise ConfigError(
            f"pages: expected at least {least}, which are those of one sequence of {sizes.capacity} positions, "
            f"one for each other row, and one that is nobody's; found {pages}: raise it, or lower max_sequence or slots"
        )


def _paged(profile: CompileProfile, pages: int, page_tokens: int) -> CompileProfile:
    """Returns a profile with paged caches, if it has caches."""
    if profile.cache_rows is None:
        return profile
    return replace(profile, cache_rows=pages, page_tokens=page_tokens)


def _adapted(model: Model[Any], profiles: Sequence[CompileProfile], rank: int) -> Iterator[CompileProfile]:
    """Yields the profiles of entry points with adapters."""
    check_size("adapter_rank", rank)
    if any(profile.cache_rows is None for profile in profiles):
        raise ConfigError(
            f"adapters: expected none, for {model.config.architecture} takes pictures, whose entry points have no "
            f"adapters: merge an adapter into the bundle (`adapter`)"
        )
    for profile in profiles:
        yield replace(profile, name=f"{ADAPTED}{profile.name}", adapter_rank=rank)


def check_size(name: str, size: int, most: int | None = None, why: str = "") -> None:
    """Checks that a size is 1 or more, and at most ``most``, which ``why`` explains.

    Raises:
        ConfigError: the size is out of range.
    """
    if size < 1:
        raise ConfigError(f"{name}: expected 1 or more; found {size}")
    if most is not None and size > most:
        raise ConfigError(f"{name}: expected at most {most}, {why}; found {size}: lower it")


def _check_choice(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{what}: expected {' or '.join(known)}; found {value!r}{near_names(value, known)}")


def _check_names(known: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"entry point {name!r} is unknown; available: {', '.join(known)}{near_names(name, known)}"
            )
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"entry points: expected at least one, each once; found {', '.join(names) or 'none'}")


@dataclass(frozen=True, slots=True)
class ModelFamily(Generic[ConfigT]):
    """Family of models with modules of their own, such as encoders; attributes otherwise as of ``Family``.

    Attributes:
        make: function that makes the model of a configuration, in a dtype, with a number of first layers.
        embedding: function that adds the pooling of sentence embeddings to a configuration; None without support.
    """

    architecture: str
    model_type: str
    read: Callable[[ConfigFields], ConfigT]
    make: Callable[[ConfigT, DType | str, int | None], Model[ConfigT]]
    stored: Callable[[ConfigT], RecipeOf] | None = None
    layer_key: str = "*layer.{}"
    ignorable: tuple[str, ...] = ()
    embedding: Callable[[ConfigT, Pooling], ConfigT] | None = None
