"""Pictures of figures and comparisons, with Matplotlib, which is loaded when a picture is asked for."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.analysis.drawing._bars import Bar, Candidate
    from tapeline.analysis.drawing._pictures import (
        check_picture,
        write_candidate_bars,
        write_loss_curve,
        write_losses,
        write_measured_bars,
        write_picture,
    )

export_lazily(__name__)
