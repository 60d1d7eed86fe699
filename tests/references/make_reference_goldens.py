"""Stores what transformers answers to `export --verify=reference` of the demo model: run by hand, outside Bazel.

    PYTHONPATH=. python -m tests.references.make_reference_goldens PYTHON

PYTHON is an interpreter with torch and transformers. The answer is `data/demo.json` and `data/demo.npz`.
"""

import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import tapeline
from tapeline.exporting import _reference
from tapeline.reference import ReferenceAnswer, ReferenceRequest, run_reference

_DATA = Path(__file__).parent / "data"


def main() -> None:
    """Exports the demo model, and stores the answer that the export got."""
    answers: list[ReferenceAnswer] = []

    def run(request: ReferenceRequest, python: str) -> ReferenceAnswer:
        answers.append(run_reference(request, python))
        return answers[-1]

    _reference.run_reference = run
    with tempfile.TemporaryDirectory() as folder:
        options = {"target": (), "sequence": 8, "max_sequence": 32}
        tapeline.export("demo", Path(folder, "bundle"), verify="reference", reference_python=sys.argv[1], **options)
    fields = dataclasses.asdict(answers[0])
    arrays = {f"sequence.{place}": array for place, array in enumerate(fields.pop("sequences"))}
    del fields["results"]
    _DATA.mkdir(exist_ok=True)
    (_DATA / "demo.json").write_text(json.dumps(fields) + "\n")
    np.savez_compressed(_DATA / "demo.npz", **arrays)


if __name__ == "__main__":
    main()
