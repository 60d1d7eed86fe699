"""Comparison of a device's results with those of the eager context."""

from collections.abc import Callable
from typing import Any

from lang_core import VerificationError, as_dtype
from tapeline.compare import TOLERANCE, agreement
from tapeline.divergence import Arrays, expected_result


def no_results(name: str) -> Arrays | None:
    """Returns None: there are no other results of an entry point to compare with."""
    del name
    return None


def compared(
    device: str,
    entry_point: str,
    results: Arrays,
    expected: Arrays,
    dtype: str,
    exact: Callable[[str], Arrays | None] = no_results,
    rounded: Callable[[str], Arrays | None] = no_results,
) -> list[dict[str, Any]]:
    """Compares results by name.

    Whole numbers must be the same. Two 16-bit computations may differ by more than the tolerance and be right:
    normalizing a small vector makes its rounding errors large. So if they do, both are compared with f32.

    Devices take the activations of packed products in blocks of integers, and the eager context takes them exactly. A
    block with a value far above the others loses precision, which a few layers can enlarge beyond the tolerance. So
    if results differ by more, they are compared with an eager run that rounds activations to the same blocks.

    Quantized caches are compared as the numbers that they stand for: a device may round a number to a neighbour.

    Args:
        device: for the report.
        entry_point: its name.
        results: the device's results.
        expected: the eager context's.
        dtype: of the model: a key of ``TOLERANCE``.
        exact: gives an entry point's results in f32, or None; asked if results differ by more than the tolerance.
        rounded: gives an entry point's results with activations in blocks of integers, or None; asked as ``exact`` is.

    Raises:
        VerificationError: one disagrees.
    """
    rows = []
    truth: Arrays | None = None
    in_blocks: Arrays | None = None
    for name in expected:
        reference = expected_result(name, results, expected)
        tolerance = TOLERANCE[dtype] if as_dtype(reference.dtype).is_floating else 0.0
        figures = agreement(results[name], reference)
        row = {"device": device, "entry_point": entry_point, "result": name, **figures.as_json()}
        rows.append(row)
        if figures.within(tolerance):
            continue
        beside = ""
        if tolerance:
            in_blocks = in_blocks or rounded(entry_point)
        if in_blocks is not None:
            like_device = agreement(results[name], in_blocks[name])
            row["to_rounded"] = like_device.as_json()
            if like_device.within(tolerance):
                continue
            beside = f", {like_device.max_rel:.3g} with activations in blocks of integers in the eager context"
        if tolerance:
            truth = truth or exact(entry_point)
        if truth is not None:
            mine, eager = agreement(results[name], truth[name]), agreement(reference, truth[name])
            row["to_f32"], row["eager_to_f32"] = mine.as_json(), eager.as_json()
            if mine.as_near(eager):
                continue
            beside += f", NMSE to f32 {mine.nmse:.3g}, where the eager context's is {eager.nmse:.3g}"
        raise VerificationError(
            f"device {device}, entry point {entry_point!r}, result {name!r} disagrees with the eager context: "
            f"largest error {figures.max_abs:.3g} ({figures.max_rel:.3g} of the largest value; "
            f"{tolerance:.0e} is allowed for {dtype}), cosine {figures.cosine:.6f}{beside}: the bundle was not "
            f"written"
        )
    return rows
