import pytest

from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import DATA, encoder_weights, read_encoder_golden, read_encoder_manifest

_ALL = pytest.mark.parametrize("case", ENCODER_CASES.values(), ids=ENCODER_CASES)


@_ALL
def test_golden_file_was_made_from_this_case(case: EncoderCase) -> None:
    assert case.digest() == read_encoder_manifest()["cases"][case.name]["case"]
    assert read_encoder_golden(case.name).hidden.dtype == "float32"


def test_manifest_and_data_name_the_cases_and_no_others() -> None:
    manifest = read_encoder_manifest()
    assert set(manifest["cases"]) == set(ENCODER_CASES)
    assert {path.stem for path in DATA.glob("*.npz")} == set(ENCODER_CASES)
    assert manifest["script"] == "tests/goldens/encoders/make_encoder_goldens.py"
    assert {"torch", "transformers", "sentence-transformers"} <= set(manifest["versions"])


@_ALL
def test_weights_have_the_stored_shapes(case: EncoderCase) -> None:
    shapes = read_encoder_manifest()["cases"][case.name]["shapes"]
    assert {key: list(array.shape) for key, array in encoder_weights(case).items()} == shapes
