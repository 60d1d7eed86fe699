"""Hashes of the texts of kernels: ``python -m run_iree.kernels._hashes_testing`` before and after a refactoring.

Prints a line per kind of function and set of kernels: the number of texts, their lines, and a hash of all.
"""

import hashlib
import itertools
from collections.abc import Iterator
from typing import Final

from compile_hlo.directions import KernelArgument, KernelResult, KernelSignature
from lang_core import BLOCK, ENCODINGS, TensorSpec
from run_iree.kernels import CpuKernels

_SETS: Final = {
    "any": CpuKernels(),
    "fma": CpuKernels(fma=True),
    "avx512": CpuKernels(avx512=True, fma=True),
    "bf16": CpuKernels(avx512=True, fma=True, bf16=True, ahead=0),
    "vnni": CpuKernels(vnni=True, avx512=True, fma=True, ahead=3456),
}
_ROWS: Final = (1, 2, 5, 21, 165)
_SIZES: Final = ((256, 2048), (37, 256), (48, 768), (3, 96), (32, 2112), (22, 192), (16, 512))
_DTYPES: Final = ("f32", "bf16", "f16")

_Spec = tuple[tuple[int, ...], str]


def function_of(
    kind: str, arguments: list[_Spec], results: list[_Spec], attributes: dict[str, str | int | float | bool]
) -> KernelSignature:
    """Returns the record of a helper function."""
    return KernelSignature(
        kind,
        tuple(KernelArgument(TensorSpec(*spec), "IN", "IN") for spec in arguments),
        tuple(KernelResult(TensorSpec(*spec)) for spec in results),
        kind=kind,
        attributes=attributes,
    )


def functions() -> Iterator[KernelSignature]:
    """Yields records of all kinds of functions that have kernels."""
    for (rows, (outputs, columns)), dtype in zip(
        itertools.product(_ROWS, _SIZES), itertools.cycle(_DTYPES), strict=False
    ):
        blocks = columns // BLOCK
        for planes, invariant in itertools.product((1, 2), (False, True)):
            x: list[_Spec] = [((rows, planes, columns), "i8"), ((rows, blocks), "f32"), ((rows, blocks), "i32")]
            for name, encoding in ENCODINGS.items():
                if columns % encoding.block:
                    continue
                w = columns // encoding.block * encoding.block_bytes
                attributes = {"encoding": name, "batch_invariant": invariant}
                result = [((rows, outputs), dtype)]
                yield function_of("packed_linear", [*x, ((outputs, w), "i8")], result, attributes)
                if rows < 3 and not invariant:
                    several: list[_Spec] = [((1, *shape), kind) for shape, kind in x]
                    stacked = ((5, outputs, w), "i8")
                    arguments = [*several, ((3,), "i32"), stacked]
                    result = [((3, rows, outputs), dtype)]
                    yield function_of("expert_block_product", arguments, result, attributes)
            if dtype != "f16" or not invariant:
                yield function_of("block_quantize", [((rows, columns), dtype)], x, {})
                yield function_of("silu_quantize", [((rows, columns), dtype)] * 2, x, {})
                weights: list[_Spec] = [((columns,), dtype), ((columns,), "f32")]
                for weight, centred in itertools.product((weights[:1], weights[1:], []), (False, True)):
                    norm = {"eps": 1e-6, "centred": centred}
                    yield function_of("rms_norm_quantize", [((rows, columns), dtype), *weight], x, norm)
        for invariant, result in itertools.product((False, True), {dtype, "f32"}):
            given: list[_Spec] = [((rows, columns), dtype), ((outputs, columns), dtype)]
            yield function_of("linear", given, [((rows, outputs), result)], {"batch_invariant": invariant})
    yield from _attentions()


def _attentions() -> Iterator[KernelSignature]:
    for queries, keys, size, value, group in (
        (1, 48, 16, 32, 3),
        (1, 96, 64, 64, 4),
        (7, 64, 32, 16, 2),
        (40, 160, 64, 32, 1),
    ):
        for dtype, pages, biases in itertools.product(_DTYPES, (0, 1, 2), (1, 2)):
            q, bias = (2, 3, group, queries, size), ((biases, queries, keys), "f32")
            cached = 9 if pages else 2
            page = keys // (pages or 1)
            caches: list[_Spec] = [((cached, 3, page, size), dtype), ((cached, 3, page, value), dtype)]
            rows: list[_Spec] = [((2, pages) if pages > 1 else (2,), "i32")] if pages else []
            arguments = [(q, dtype), *caches, bias, *rows]
            result = [((2, 3, group, queries, value), dtype)]
            yield function_of("cached_attention", arguments, result, {"scale": 0.25})
            if queries == 1:
                blocks = 3 * group * value // BLOCK
                made = [((2, 2, 3 * group * value), "i8"), ((2, blocks), "f32"), ((2, blocks), "i32")]
                yield function_of("cached_attention_quantize", arguments, made, {"scale": 0.25})


def main() -> None:
    """Prints the hashes."""
    texts: dict[tuple[str, str], set[str]] = {}
    for function in functions():
        for name, kernels in _SETS.items():
            kernel = kernels.kernel(function)
            while kernel is not None:
                texts.setdefault((function.kind, name), set()).add(kernel.name + kernel.executable("f"))
                kernel = None if kernel.arrangement is None else kernel.arrangement.kernel
    for (kind, name), known in sorted(texts.items()):
        joined = "\n".join(sorted(known))
        digest = hashlib.sha256(joined.encode()).hexdigest()[:24]
        print(f"{kind:26} {name:7} {len(known):6} {len(joined.splitlines()):9} {digest}")


if __name__ == "__main__":
    main()
