"""Runs ONNX models with test data in every mode: ``bazel run //tests/conformance:onnx_model -- --model DIR``.

DIR has ONNX's form: model.onnx, and test_data_set_0 with input_0.pb, .., output_0.pb, ..
"""

import tempfile
from pathlib import Path
from typing import Final

from absl import flags

from lang_core import VerificationError
from run_iree import DEVICES
from tapeline import cli
from tests.conformance._onnx_devices import device_failures
from tests.conformance._onnx_files import read_cases
from tests.conformance._onnx_modes import MODES, failures

_MODEL: Final = flags.DEFINE_multi_string("model", None, "A folder with model.onnx and data sets.", required=True)
_MODE: Final = flags.DEFINE_list(
    "modes", [*MODES, "local-task"], f"Of {', '.join(MODES)} and the devices {', '.join(DEVICES)}."
)
_RTOL: Final = flags.DEFINE_float("rtol", 1e-3, "Relative tolerance; f16 and bf16 have at least 2e-3 and 2e-2.")
_ATOL: Final = flags.DEFINE_float("atol", 1e-7, "Absolute tolerance.")


def main() -> None:
    """Prints a line per case and mode."""
    wrong = 0
    for folder in map(cli.user_path, _MODEL.value):
        for case in read_cases(folder, _RTOL.value, _ATOL.value):
            if case.reason is not None:
                print(f"{case.name}: not expressible: {case.reason}")
                continue
            for mode in _MODE.value:
                with tempfile.TemporaryDirectory() as room:
                    run = MODES.get(mode)
                    lines = failures([case], run) if run else list(device_failures([case], (mode,), Path(room)))
                wrong += bool(lines)
                print("\n".join(lines) if lines else f"{case.name}: {mode}: pass", flush=True)
    if wrong:
        raise VerificationError(f"{wrong} times a case went wrong: see above")


if __name__ == "__main__":
    cli.run(main)
