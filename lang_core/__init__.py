"""The language: dtypes, specs, tensors, the op table, execution contexts, modules.

>>> import numpy as np
>>> from lang_core import EagerExecutionContext
>>> ctx = EagerExecutionContext()
>>> ctx.isRecording
False
>>> ctx.ops.add(np.ones((2, 1), np.float32), np.arange(3, dtype=np.float32)).numpy().tolist()
[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
"""

from typing import TYPE_CHECKING

from lang_core._lazy_exports import export_lazily

if TYPE_CHECKING:
    from lang_core._cached_weights import CachedWeights
    from lang_core._choices import checked_choices, choice, flag
    from lang_core._context import ExecutionContext
    from lang_core._dtypes import (
        DTYPE_ALIASES,
        DTYPES,
        DType,
        as_dtype,
        bf16,
        bool_,
        f16,
        f32,
        f64,
        i8,
        i32,
        i64,
        is_table_dtype,
        plain_bools,
        promote,
        u8,
    )
    from lang_core._eager import EagerExecutionContext, as_array
    from lang_core._entry_point import Argument, EntryPoint
    from lang_core._errors import (
        CheckpointError,
        ChoiceError,
        CompileError,
        ConfigError,
        DescriptionError,
        DeviceError,
        GraphError,
        InputError,
        KeywordError,
        MissingPackageError,
        OperatorError,
        OpError,
        PluginError,
        ProcessError,
        RecordingError,
        TapelineError,
        TraceEscapeError,
        UnknownNameError,
        VerificationError,
        any_of,
        near_names,
        some_of,
    )
    from lang_core._extras import EXTRAS, check_extra, has_extra, load_extra
    from lang_core._formats import LAYOUTS
    from lang_core._json import (
        JSON_BOUNDS,
        LARGE_JSON_BOUNDS,
        JsonBounds,
        JsonError,
        file_bytes,
        file_json,
        json_value,
        open_regular,
        read_json,
    )
    from lang_core._keywords import near_keywords
    from lang_core._layouts import BitField, BlockLayout, Plane, SubScales
    from lang_core._mapping_weights import MappingWeights
    from lang_core._mesh import MESH_AXES, Axes, MeshShape
    from lang_core._module import Module, Repeated
    from lang_core._nesting import nests_regions
    from lang_core._operands import operand_advice
    from lang_core._operators import NoOperators
    from lang_core._packing import (
        ACTIVATION_BITS,
        BLOCK,
        ENCODINGS,
        Activations,
        Encoding,
        encoding_named,
        quantizable,
        register_encoding,
    )
    from lang_core._parameter import Parameter
    from lang_core._plugins import PLUGINS, load_plugins, plugin_versions
    from lang_core._processes import python_command
    from lang_core._quantizers import Quantizer
    from lang_core._spec import TensorSpec
    from lang_core._tags import TagSelection, tag_name
    from lang_core._tensor import EagerTensor, Tensor
    from lang_core._user_cache import check_private, make_private, user_cache_directory
    from lang_core._weights import (
        MatrixRows,
        PackedRows,
        Part,
        Parts,
        StoredBytes,
        WeightSource,
        check_rows,
        matrix_rows_by,
        matrix_rows_of,
        part_of,
        rows_of,
    )
    from lang_core.ops import OPS, Literal, Op, Operand, Ops, Region, define_op, require

__all__ = [
    "require",
    "define_op",
    "register_encoding",
    "quantizable",
    "load_extra",
    "python_command",
    "load_plugins",
    "plugin_versions",
    "Quantizer",
    "PluginError",
    "PLUGINS",
    "ACTIVATION_BITS",
    "BLOCK",
    "BitField",
    "BlockLayout",
    "Plane",
    "SubScales",
    "DTYPES",
    "DTYPE_ALIASES",
    "EXTRAS",
    "ENCODINGS",
    "LAYOUTS",
    "MESH_AXES",
    "OPS",
    "Activations",
    "Argument",
    "Axes",
    "CachedWeights",
    "CheckpointError",
    "ChoiceError",
    "CompileError",
    "ConfigError",
    "DType",
    "DescriptionError",
    "DeviceError",
    "EagerExecutionContext",
    "EagerTensor",
    "Encoding",
    "EntryPoint",
    "ExecutionContext",
    "GraphError",
    "InputError",
    "MissingPackageError",
    "KeywordError",
    "Literal",
    "MappingWeights",
    "MeshShape",
    "MatrixRows",
    "Module",
    "Op",
    "NoOperators",
    "OpError",
    "OperatorError",
    "Operand",
    "Ops",
    "PackedRows",
    "StoredBytes",
    "Parameter",
    "Part",
    "Parts",
    "ProcessError",
    "RecordingError",
    "Repeated",
    "Region",
    "TagSelection",
    "TapelineError",
    "Tensor",
    "TensorSpec",
    "TraceEscapeError",
    "UnknownNameError",
    "VerificationError",
    "WeightSource",
    "as_array",
    "as_dtype",
    "bf16",
    "bool_",
    "check_extra",
    "check_private",
    "check_rows",
    "checked_choices",
    "choice",
    "encoding_named",
    "export_lazily",
    "f16",
    "f32",
    "f64",
    "flag",
    "has_extra",
    "i8",
    "i32",
    "i64",
    "is_table_dtype",
    "matrix_rows_by",
    "matrix_rows_of",
    "any_of",
    "JSON_BOUNDS",
    "LARGE_JSON_BOUNDS",
    "JsonBounds",
    "JsonError",
    "file_bytes",
    "file_json",
    "json_value",
    "open_regular",
    "read_json",
    "make_private",
    "near_keywords",
    "near_names",
    "some_of",
    "nests_regions",
    "part_of",
    "operand_advice",
    "plain_bools",
    "promote",
    "rows_of",
    "tag_name",
    "u8",
    "user_cache_directory",
]

export_lazily(__name__)
