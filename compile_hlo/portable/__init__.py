"""StableHLO's own tools, from jaxlib: verifier, portable artifacts, reference interpreter."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from compile_hlo.portable._child import ARTIFACT_VERSION, interpret, verify_text, write_artifact, write_per_device

export_lazily(__name__)
