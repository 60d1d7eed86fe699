"""The layer table of ARCHITECTURE.md, as the tests of this folder check it."""

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
    "compile_hlo": _layer("compile_dag lang_core", "jax jaxlib ml_dtypes numpy"),
    "transformer_core": _layer("lang_core", "gguf numpy"),
    "run_iree": _layer("compile_dag compile_hlo lang_core", "iree_base_compiler iree_base_runtime ml_dtypes numpy"),
    "run_jax": _layer("compile_dag compile_hlo lang_core", "jax jaxlib numpy optax orbax_checkpoint"),
    "autotune": _layer(
        "compile_dag compile_hlo lang_core run_iree run_jax transformer_core",
        "jax ml_dtypes numpy",
    ),
    "tapeline": _layer(
        "autotune compile_dag compile_hlo lang_core run_iree run_jax transformer_core",
        "absl_py gguf huggingface_hub jinja2 llguidance matplotlib ml_dtypes numpy pillow prometheus_client "
        "python_multipart rich shtab soundfile starlette tokenizers uvicorn",
    ),
}

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
