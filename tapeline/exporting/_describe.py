"""``kernel_config.json`` of an export."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from compile_hlo import LoweredFunction, LoweredModule
from compile_hlo.directions import Signature
from tapeline.bundle import MARK, KernelConfig, kernel_record
from tapeline.exporting._load import Export
from tapeline.exporting._options import ExportOptions
from tapeline.exporting._producer import producer
from tapeline.runners import invariance_fields

# Facts of a compilation that say how it went, not what was compiled; the report has them. Without them two exports of a
# model describe themselves in the same bytes.
_OF_THE_RUN: Final = frozenset({"compile", "seconds", "compiler_peak_rss_bytes", "tuning"})


def write_description(export: Export, staging: Path) -> None:
    """Writes the manifest of the export, with the hashes of all files except itself and the report."""
    description(export, export.lowered, export.hashes).write(staging / MARK)


def description(export: Export, lowered: LoweredModule, hashes: dict[str, str]) -> KernelConfig:
    """Returns the description of a bundle.

    Args:
        export: options, and the compiled targets.
        lowered: the module.
        hashes: sha256 of each file.
    """
    mesh, signatures = export.mesh, [_signature(function, lowered) for function in lowered.functions]
    return KernelConfig(
        entry_points=signatures if mesh is None else [mesh.signature(signature) for signature in signatures],
        parameters=_Parameters(export, lowered),
        kernels=[kernel_record(kernel) for kernel in (*lowered.kernels, *lowered.helpers)],
        targets={name: _lasting(target) for name, target in export.targets.items()},
        model=_model(export),
        producer=producer(),
        sha256=hashes,
        debug=export.debug,
        mesh=None if mesh is None else mesh.table(lowered),
        kernel_calls=[] if export.kernels is None else export.kernels.calls(),
    )


def _signature(function: LoweredFunction, lowered: LoweredModule) -> Signature:
    """Returns an entry point's signature, with the parameters that it reads if these are not all."""
    known = lowered.parameters()
    reads = tuple(path for path in known if path in function.parameters)
    return function.signature if len(reads) == len(known) else replace(function.signature, parameters=reads)


def _lasting(target: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts of a compiled target that are the same whenever it is compiled."""
    return {name: value for name, value in target.items() if name not in _OF_THE_RUN}


def model_name(options: ExportOptions, source: Mapping[str, Any]) -> str:
    """Returns a model's name on the hub, or that of its file or directory without the folders of this machine."""
    return options.model if "hub" in source else Path(options.model).name or "model"


class _Parameters(Mapping[str, dict[str, Any]]):
    """Dtype and shape of the archive's entries, and the form of packed rows, by path.

    Records are made when they are read: a large model has thousands.
    """

    def __init__(self, export: Export, lowered: LoweredModule) -> None:
        self._specs = lowered.parameters()
        self._encodings = {
            path: parameter.encoding.name
            for path, parameter in export.model.named_parameters()
            if parameter.encoding is not None
        }

    def __getitem__(self, path: str) -> dict[str, Any]:
        spec = self._specs[path]
        record: dict[str, Any] = {"dtype": spec.dtype.name, "shape": list(spec.shape)}
        return {**record, "encoding": self._encodings[path]} if path in self._encodings else record

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


def _model(export: Export) -> dict[str, Any]:
    options = export.options
    return {
        "family": export.model.config.architecture,
        "name": model_name(export.options, export.source),
        "source": export.source,
        "dtype": options.dtype,
        "quantize": options.quantize,
        "activations": options.activations,
        "batch": export.sizes.batch,
        "sequence": export.sizes.sequence,
        "max_sequence": export.sizes.max_sequence,
        **_caching(export),
        **_slots(export),
        **export.model.config.facts(),
    }


def _caching(export: Export) -> dict[str, Any]:
    """The forms of positions and caches, if there are some."""
    if not export.caches["bytes"]:
        return {}
    options = export.options
    forms = {"positions": "shared", "window_caches": options.cache_form}
    if options.kv_cache is not None:
        forms["kv_cache"] = options.kv_cache
    return {"caching": {**forms, "verify_tokens": options.verify_tokens, **export.caches}}


def _slots(export: Export) -> dict[str, Any]:
    """The slots of the caches, and facts of the entry points for a server."""
    options = export.options
    if options.slots is None:
        return {}
    pages = {} if options.paging is None else dict(zip(("pages", "page_tokens"), options.paging, strict=True))
    adapters = {} if export.adapters is None else {"adapters": export.adapters}
    return {
        "slots": options.slots,
        **pages,
        **adapters,
        "chunks": _chunks(export),
        **invariance_fields(export.invariance),
    }


def _chunks(export: Export) -> list[int]:
    """Numbers of tokens that calls of ``prefill_row`` take, ascending."""
    points = [point for point in export.entry_points if point.name.startswith("prefill_row")]
    return sorted(point.arguments[0].spec.shape[1] for point in points)
