"""All cases of ops: what the interpreter runs."""

from typing import Final

from tests.emission._attention_cases import ATTENTION_BEYOND, ATTENTION_CASES
from tests.emission._between_cases import BETWEEN_CASES
from tests.emission._fusion_cases import FUSION_CASES
from tests.emission._op_cases import CASES
from tests.emission._packed_cases import BEYOND_CASES, PACKED_CASES
from tests.emission._update_cases import UPDATE_CASES

ALL_CASES: Final = (
    *CASES,
    *FUSION_CASES,
    *BETWEEN_CASES,
    *PACKED_CASES,
    *BEYOND_CASES,
    *ATTENTION_CASES,
    *UPDATE_CASES,
    *ATTENTION_BEYOND,
)
CASES_BY_NAME: Final = {case.name: case for case in ALL_CASES}
