"""Facts of bundles and models as text."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tapeline.analysis.outline import without_numbers
from tapeline.cli import size_text, table

_INDENT: Final = "  "
_WIDEST: Final = 80
_SHOWN: Final = 9  # points of a frontier


def facts_text(facts: Mapping[str, Any]) -> str:
    """Returns the facts of a bundle, in sections."""
    return "\n".join(_lines(facts)) + "\n"


def model_text(facts: Mapping[str, Any]) -> str:
    """Returns the facts of a model, in sections."""
    lines = [f"{facts['model']} ({', '.join(f'{name} {value}' for name, value in facts['source'].items())})"]
    lines += ["config.json:", *table([(name, _short(value)) for name, value in facts["config"].items()])]
    lines.append(f"tokenizer: {', '.join(facts['tokenizer']) or 'none'}")
    lines += _parameters(facts["tensors"])
    if facts["dequantised"]:
        lines += ["packed tensors that an export unpacks:", *table([*_unpacked(facts["dequantised"])])]
    return "\n".join(lines) + "\n"


def _unpacked(totals: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, ...]]:
    for name, total in totals.items():
        yield (
            name,
            f"{total['count']} tensors",
            size_text(total["bytes"]),
            f"{size_text(total['unpacked_bytes'])} in f32",
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def parameters_text(parameters: Sequence[Mapping[str, Any]]) -> str:
    """Returns a line per parameter, and a line with their number and size."""
    rows = [(row["path"], _type(row), size_text(row["bytes"])) for row in parameters]
    total = f"{len(parameters)} parameters, {size_text(sum(row['bytes'] for row in parameters))}"
    return "\n".join([*table(rows, ""), total]) + "\n"


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"{facts['bundle']} (schema {facts['schema']})"
    yield "producer: " + ", ".join(f"{name} {version}" for name, version in facts["producer"].items())
    yield "model: " + ", ".join(f"{name} {_value(value)}" for name, value in facts["model"].items())
    yield "files:"
    yield from table([(file["name"], _size(file["bytes"]), file["state"]) for file in facts["files"]])
    for entry_point in facts["entry_points"]:
        yield from _entry_point(entry_point)
    if facts["kernels"]:
        yield "kernels:"
        yield from table([_kernel(kernel) for kernel in facts["kernels"]])
    yield from _parameters(facts["parameters"])
    for name, target in facts["targets"].items():
        yield from _target(name, target)
    if facts["nodes"]:
        yield "nodes: " + ", ".join(f"{count} {name}" for name, count in facts["nodes"].items())
    if facts["losses"]:
        yield from losses_lines(facts["losses"])
    yield from _verification(facts["verification"])


def _entry_point(entry_point: Mapping[str, Any]) -> Iterator[str]:
    yield f"entry point {entry_point['name']}:"
    rows: dict[tuple[str, ...], int] = {}
    for cells in (*map(_argument, entry_point["args"]), *map(_result, entry_point["results"])):
        row = tuple(map(without_numbers, cells))
        rows[row] = rows.get(row, 0) + 1
    yield from table([(*row[:2], f"x {count}" if count > 1 else "", *row[2:]) for row, count in rows.items()])


def _argument(fields: Mapping[str, Any]) -> tuple[str, ...]:
    alias = f"becomes result {fields['alias_result']}" if fields["alias_result"] else ""
    guarded = "guarded by a copy" if fields["guarded"] and fields["kind"] == "tensor" else ""
    kind = "scalar" if fields["kind"] == "scalar" else "donated" if fields["donated"] else guarded
    return f"argument {fields['direction']}", fields["name"], _type(fields), kind, alias


def _result(fields: Mapping[str, Any]) -> tuple[str, ...]:
    alias = f"was argument {fields['alias_arg']}" if fields["alias_arg"] else ""
    return f"result {fields['direction']}", fields["name"], _type(fields), "", alias


def _kernel(kernel: Mapping[str, Any]) -> tuple[str, str, str]:
    signature, reason = kernel["signature"], kernel["reason"]
    text = f"no signature: {reason}" if signature is None else f"({_runs(signature)})"
    return kernel["name"], f"called {kernel['call_sites']} times", text


def _parameters(summary: Mapping[str, Any]) -> Iterator[str]:
    yield f"parameters: {summary['count']}, {size_text(summary['bytes'])}"
    dtypes = summary["dtypes"].items()
    yield from table([(name, f"{total['count']} parameters", size_text(total["bytes"])) for name, total in dtypes])
    if summary["largest"]:
        yield f"{_INDENT}largest:"
        rows = [(row["path"], _type(row), size_text(row["bytes"])) for row in summary["largest"]]
        yield from table(rows, 2 * _INDENT)


def _target(name: str, target: Mapping[str, Any]) -> Iterator[str]:
    yield f"target {name}: {target.get('file')}"
    yield f"{_INDENT}devices: {', '.join(target.get('devices', ()))}"
    cpu = target.get("cpu")
    if cpu:
        yield f"{_INDENT}CPU: {cpu.get('name')} ({len(cpu.get('features', ()))} features; {cpu.get('target')})"
    yield f"{_INDENT}flags: {' '.join(target.get('flags', ()))}"


def _verification(rows: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    if rows is None:
        yield "verification: the bundle has no report"
    elif not rows:
        yield "verification: no result was compared"
    else:
        worst: dict[tuple[str, str], tuple[Mapping[str, Any], int]] = {}
        for row in rows:
            result = "skipped" if "skipped" in row else f"{row['entry_point']}.{without_numbers(row['result'])}"
            key = row["device"], result
            other, count = worst.get(key, (row, 0))
            worst[key] = max(row, other, key=lambda one: one.get("max_rel", 0.0)), count + 1
        yield "verification, the worst of alike results:"
        yield from table([_verified(*key, *row_and_count) for key, row_and_count in worst.items()])


def _verified(device: str, result: str, row: Mapping[str, Any], count: int) -> tuple[str, ...]:
    if "skipped" in row:
        return device, result, "", row["skipped"]
    figures = f"max abs {row['max_abs']:.3g}, max rel {row['max_rel']:.3g}, cosine {row['cosine']:.6f}"
    return device, result, f"x {count}" if count > 1 else "", figures


def losses_lines(losses: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines that show measured losses of encodings: in all, per layer, and some of the frontier."""
    yield (
        f"encodings by measured loss: {losses['bits_per_weight']:.3f} bits per weight, loss {losses['loss']:.3g} nats "
        f"per token, perplexity {losses['unquantized_perplexity']:.4g} -> {losses['perplexity']:.4g}"
    )
    groups: dict[int | None, dict[str, int]] = {}
    for matrix in losses["matrices"]:
        counts = groups.setdefault(matrix["layer"], {})
        counts[matrix["encoding"]] = counts.get(matrix["encoding"], 0) + 1
    rows = [
        (
            "other" if row["layer"] is None else f"layer {row['layer']}",
            f"{8 * row['bytes'] / row['weights']:.2f} bits",
            f"loss {row['loss']:.2e}",
            ", ".join(f"{count} {name}" for name, count in sorted(groups[row["layer"]].items())),
        )
        for row in losses["layers"]
    ]
    yield from table(rows)
    points = losses["frontier"]
    shown = [points[index * (len(points) - 1) // (_SHOWN - 1)] for index in range(_SHOWN)] if points else []
    yield "size and loss that can be chosen:"
    yield from table([(f"{size:.2f} bits", f"loss {loss:.2e}") for size, loss in dict.fromkeys(map(tuple, shown))])


def _size(size: int | None) -> str:
    return "" if size is None else size_text(size)


def _type(fields: Mapping[str, Any]) -> str:
    packed = f"{fields['encoding']} in " if "encoding" in fields else ""
    return f"{packed}{fields['dtype']}[{','.join(map(str, fields['shape']))}]"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({', '.join(f'{name} {_value(entry)}' for name, entry in value.items())})"
    if isinstance(value, list):
        return f"[{_runs(value)}]"
    return str(value)


def _runs(values: Iterable[Any]) -> str:
    """Returns values as a list in which equal neighbours stand once, with their count."""
    runs: list[tuple[Any, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = value, runs[-1][1] + 1
        else:
            runs.append((value, 1))
    return ", ".join(str(value) if count == 1 else f"{value} x {count}" for value, count in runs)
