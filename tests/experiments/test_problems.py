"""The small problems: the same on every machine, and all there is to a job."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments import problem_models
from benchmarks.experiments.problem_data import FORMULAS, arrays
from benchmarks.experiments.problems import PROBLEMS, Problem
from vcdl.data.npz_file import load
from vcdl.job import load_job


@pytest.mark.parametrize("name", FORMULAS)
def test_data_have_every_class_and_are_the_same_each_time(name: str) -> None:
    once, again = arrays(name), arrays(name)
    assert all(np.array_equal(once[key], again[key]) for key in once)
    counts = np.bincount(once["y_train"])
    assert counts.min() > len(once["y_train"]) / len(counts) / 2
    assert not np.array_equal(once["x_train"][:100], once["x_test"][:100])


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_a_problem_is_written_as_a_job_once(problem: Problem, tmp_path: Path) -> None:
    job_file = problem.write(tmp_path)
    job = load_job(job_file)
    assert hasattr(problem_models, problem.model)
    if job.data.npz is not None:
        assert len(load(job.data.npz, job.data).train) == 2_400
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    problem.write(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times
