import subprocess
import sys

import pytest

import tapeline


@pytest.mark.parametrize("name", vars(tapeline)["__all__"])
def test_a_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(tapeline, name)
    assert name in ("Progress", "VERSION") or value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tapeline' has no attribute 'exprot'") as caught:
        _ = tapeline.exprot  # pyright: ignore[reportAttributeAccessIssue]
    assert (caught.value.name, caught.value.obj) == ("exprot", tapeline)  # Python adds near names of dir() for these


def test_dir_lists_the_public_names_and_imports_none() -> None:
    code = (
        "import sys, tapeline; names = dir(tapeline); print(set(tapeline.__all__) <= set(names), '__all__' in names, "
        "names == sorted(set(names)), [m for m in ('jax', 'iree', 'numpy') if m in sys.modules], "
        "[name for name in names if not name.startswith('_') and name not in tapeline.__all__])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout == "True True True [] []\n"


def test_the_import_loads_no_engine() -> None:
    code = "import sys, tapeline; print([m for m in ('jax', 'iree', 'numpy', 'tokenizers') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout == "[]\n"
