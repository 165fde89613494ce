"""The slots of a job that grows: few until its first steps are made, then all."""

import pytest

from vcdl.job import job_of
from vcdl.job.growing_slots import growing_slots


@pytest.mark.parametrize(("made", "slots"), [(0, 10), (10, 10), (40, 23), (79, 40), (80, 40), (799, 40)])
def test_the_slots_of_a_job_grow_over_its_first_tenth(made: int, slots: int) -> None:
    assert growing_slots(40, made, growing=80.0) == slots
    assert growing_slots(40, made, growing=0.0) == 40
    assert growing_slots(3, made, growing=80.0) == 3, "a job has no more than the grid wants"


def test_a_job_for_strangers_begins_with_all_its_slots() -> None:
    """Hosts that come after its first updates would be newcomers, which may bring little (docs/decisions/144)."""
    values = {"name": "j", "model": {"builtin": "mlp"}, "data": {"dataset": "digits"}}
    assert job_of(values, "test").trusting("own").grows_over == 0.1
    assert job_of(values, "test").trusting("strangers").grows_over == 0
