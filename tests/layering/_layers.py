"""The layer table of ARCHITECTURE.md, as the tests of this folder check it."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Layer(NamedTuple):
    """Imports that one top-level package may have besides itself and the standard library.

    Attributes:
        packages: of this repository.
        distributions: of others, as labels of the lock.
    """

    packages: frozenset[str]
    distributions: frozenset[str]


def _layer(packages: str, distributions: str) -> Layer:
    return Layer(frozenset(packages.split()), frozenset(f"@pip//{name}" for name in distributions.split()))


# tools and tests may import everything.
LAYERS: Final = {
    "lang_core": _layer("", "ml_dtypes numpy"),
    "compile_dag": _layer("lang_core", "ml_dtypes numpy"),
    "compile_hlo": _layer("compile_dag lang_core", "jaxlib ml_dtypes numpy"),
    "runtime": _layer("compile_dag compile_hlo lang_core", "numpy"),
    "transformer_core": _layer("lang_core", "gguf google_re2 numpy"),
    "generation": _layer("lang_core", "numpy"),
    "run_iree": _layer(
        "compile_dag compile_hlo lang_core runtime", "iree_base_compiler iree_base_runtime ml_dtypes numpy"
    ),
    "run_jax": _layer("compile_dag compile_hlo lang_core runtime", "jax jaxlib numpy optax orbax_checkpoint"),
    "autotune": _layer(
        "compile_dag compile_hlo lang_core run_iree run_jax runtime transformer_core",
        "jax ml_dtypes numpy",
    ),
    "tapeline": _layer(
        "autotune compile_dag compile_hlo generation lang_core run_iree run_jax runtime transformer_core",
        "absl_py gguf huggingface_hub jinja2 llguidance matplotlib ml_dtypes numpy pillow prometheus_client "
        "python_multipart rich shtab soundfile soxr starlette tokenizers uvicorn",
    ),
}

# Per package the extras of its wheel, and what each brings: of this repository, and of others as labels of the lock.
# What no extra brings comes with every installation of the wheel. The extra `all` of a wheel has those of all others.
EXTRAS: Final[Mapping[str, Mapping[str, Layer]]] = {
    "compile_hlo": {"jax": _layer("", "jaxlib")},
    "run_jax": {"train": _layer("", "optax orbax_checkpoint")},
    "autotune": {"jax": _layer("run_jax", "jax")},
    "tapeline": {
        "jax": _layer("run_jax", ""),
        "train": _layer("run_jax", "matplotlib"),
        "audio": _layer("", "soundfile soxr"),
        "images": _layer("", "pillow"),
        "plots": _layer("", "matplotlib"),
    },
}

# Modules that import what an extra brings, and the extra. Everything else loads them by lang_core.load_extra alone, so
# that an installation without the extra runs, and says what to install when the extra is first needed.
BEHIND_EXTRAS: Final[Mapping[str, str]] = {
    "compile_hlo.portable._per_device": "jax",
    "compile_hlo.portable._stablehlo": "jax",
    "run_jax.training": "train",
    "autotune.jax_compiler": "jax",
    "tapeline.media.audio._reading": "audio",
    "tapeline.media.audio._resampling": "audio",
    "tapeline.command._rank": "jax",
    "tapeline.analysis.drawing._charts": "plots",
    "tapeline.analysis.drawing._heat_strip": "plots",
    "tapeline.backends._jax": "jax",
    "tapeline.finetuning._adapter": "train",
    "tapeline.finetuning._objective": "train",
    "tapeline.finetuning._output": "train",
    "tapeline.finetuning._plan": "train",
    "tapeline.finetuning._train": "train",
    "tapeline.media.images._reading": "images",
    "tapeline.media.images._resizing": "images",
}


def always(package: str) -> Layer:
    """Returns what every installation of a package's wheel brings: its layer without what extras alone bring."""
    layer, extras = LAYERS[package], EXTRAS.get(package, {}).values()
    optional = frozenset(name for extra in extras for name in extra.packages)
    return Layer(layer.packages - optional, layer.distributions.difference(*(extra.distributions for extra in extras)))


def extra_of(module: str) -> str | None:
    """Returns the extra that a module needs; None if it runs wherever its wheel is installed."""
    behind = (name for name in BEHIND_EXTRAS if module == name or module.startswith(f"{name}."))
    return next((BEHIND_EXTRAS[name] for name in behind), None)


# What a test, and a testonly module, may import in any package, over and above its layer.
TEST_DISTRIBUTIONS: Final = frozenset(
    f"@pip//{name}"
    for name in "gguf hypothesis jax jaxlib ml_dtypes numpy onnx pytest safetensors scipy tokenizers".split()
)


def forbidden_edges() -> list[tuple[str, str]]:
    """Each (package, package that it may not depend on), sorted."""
    return sorted((a, b) for a in LAYERS for b in LAYERS if a != b and b not in LAYERS[a].packages)


def allowed_edges() -> list[tuple[str, str]]:
    """Each (package, package that it may depend on), sorted."""
    return sorted((a, b) for a in LAYERS for b in LAYERS[a].packages)
