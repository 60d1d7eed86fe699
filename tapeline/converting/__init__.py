"""Checkpoints of Hugging Face's form out of any model that is read: GGUF files, packed weights, merged adapters."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.converting._convert import CONVERTED_DTYPES, Converted, convert, write_description

__all__ = ["CONVERTED_DTYPES", "Converted", "convert", "write_description"]

export_lazily(__name__)
