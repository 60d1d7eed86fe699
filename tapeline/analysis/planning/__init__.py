"""Plans: bytes, exchanges and least times of a model on each device of a mesh, before anything is bought or compiled.

Figures of devices are TOML files; ``presets`` has some, with the source of each figure (docs/planning.md).
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.analysis.planning._hardware import Hardware, preset_names, read_hardware
    from tapeline.analysis.planning._plan import BatchPlan, DevicePlan, EntryPlan, MeshLayout, plan
    from tapeline.analysis.planning._roofline import Times, times
    from tapeline.analysis.planning._text import plan_text

export_lazily(__name__)
