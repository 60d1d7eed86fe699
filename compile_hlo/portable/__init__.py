"""StableHLO's own tools, from jaxlib: verifier, portable artifacts, reference interpreter."""

from compile_hlo.portable._child import ARTIFACT_VERSION, interpret, verify_text, write_artifact, write_per_device

__all__ = ["ARTIFACT_VERSION", "interpret", "verify_text", "write_artifact", "write_per_device"]
