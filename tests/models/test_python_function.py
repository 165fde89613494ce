"""Functions of several folders in one program, as from Python or in a notebook."""

import sys
from pathlib import Path

import pytest

from vcdl.models.python_function import call_builder

pytestmark = pytest.mark.keras

MODEL = """
import keras
import sizes

def build():
    return keras.Sequential([keras.Input((sizes.WIDTH,)), keras.layers.Dense(1)])
"""


def write(folder: Path, width: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.py").write_text(MODEL)
    (folder / "sizes.py").write_text(f"WIDTH = {width}" + " " * width)  # another length: it is compiled again
    return folder


def width(folder: Path) -> int:
    made: int = call_builder("model:build", (1,), 1, folder).inputs[0].shape[1]
    return made


def test_each_folder_has_a_module_of_its_own_and_an_edited_one_is_read_again(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first", 2), write(tmp_path / "second", 3)
    assert (width(first), width(second), width(first)) == (2, 3, 2)
    write(first, 4)
    assert width(first) == 4


def test_modules_of_the_program_stay_its_own(tmp_path: Path) -> None:
    own = type(sys)("model")
    sys.modules["model"] = own
    try:
        assert width(write(tmp_path / "job", 2)) == 2
        assert sys.modules["model"] is own
        assert "sizes" not in sys.modules
    finally:
        del sys.modules["model"]
