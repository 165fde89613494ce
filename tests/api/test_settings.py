"""Settings in Python's words."""

from pathlib import Path

import numpy as np
import pytest

from tests.places import EXAMPLES
from vcdl.api.settings import as_overrides, plain
from vcdl.errors import JobError
from vcdl.job import load_job


def test_numbers_of_numpy_and_paths_become_plain() -> None:
    given = {"a": np.float32(0.5), "b": (np.int64(3), Path("x")), "c": {1: np.array([1, 2])}, "d": None}
    assert plain(given, "update") == {"a": 0.5, "b": [3, "x"], "c": {"1": [1, 2]}, "d": None}


def test_what_no_file_can_hold_is_named_with_its_place() -> None:
    with pytest.raises(JobError, match=r"update > alpha > 2: expected a number, a text, or lists .* got a object"):
        plain({"alpha": [1, object()]}, "update")


def test_sections_are_settings_of_the_command_line() -> None:
    sections = {"stop": {"epochs": 3, "target_accuracy": None}, "seed": 7, "training": {"optimizer": {"name": "sgd"}}}
    overrides = as_overrides(sections)
    assert overrides[:3] == ("stop.epochs=3", "stop.target_accuracy=null", "seed=7")
    job = load_job(EXAMPLES / "digits.yaml", overrides)
    assert (job.stop.epochs, job.stop.target_accuracy, job.seed) == (3, None, 7)
    assert job.training.optimizer.name == "sgd"
