"""Models as other programs read them: checkpoints of Hugging Face's form, and GGUF files."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.converting._convert import CONVERTED_DTYPES, CONVERTED_FORMATS, Converted, convert, write_description
    from tapeline.converting._imatrix import Imatrix, read_imatrix

export_lazily(__name__)
