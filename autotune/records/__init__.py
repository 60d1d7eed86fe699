"""Traces that calls leave: recorded calls, labels in lowered modules, and profiles."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from autotune.records._labels import (
        PREFIX,
        checked_prefix,
        extract_labels_from_hlo_text,
        find_labels_in_lowered,
        label,
        labels_in,
        prefixed_labels_in,
        stamp_mode,
        stamp_of,
        text_of,
    )
    from autotune.records._profile import PROFILE, ProfiledCall, labelled, profile
    from autotune.records._recorded_calls import (
        RecordedCall,
        as_line,
        call_of,
        forget_invocations,
        get_invocations,
        is_recording_calls,
        read_record,
        record_file,
        record_invocation,
        record_lines,
        recorded_calls,
    )

export_lazily(__name__)
