"""Coverage-guided fuzzing of the readers of untrusted input: ``bazel run //tools:fuzz``."""

from tests.fuzz._driver import Report, run_target
from tests.fuzz.targets import NAMES
