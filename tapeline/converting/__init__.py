"""Checkpoints of Hugging Face's form out of any model that is read: GGUF files, packed weights, merged adapters."""

from tapeline.converting._convert import CONVERTED_DTYPES, Converted, convert, write_description

__all__ = ["CONVERTED_DTYPES", "Converted", "convert", "write_description"]
