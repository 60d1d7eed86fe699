"""StableHLO's own tools, from jaxlib: verifier, portable artifacts, reference interpreter."""

from compile_hlo.portable._child import in_child
from compile_hlo.portable._stablehlo import ARTIFACT_VERSION, interpret, verify_text, write_artifact

__all__ = ["ARTIFACT_VERSION", "in_child", "interpret", "verify_text", "write_artifact"]
