"""What the checks measure a vector's length by."""

import numpy as np
import pytest

from vcdl.checks import NormMeter, trained_norm
from vcdl.wire.layout import Layout, Variable

LAYOUT = Layout(
    (Variable("dense/kernel", (2,), 0), Variable("bn/moving_variance", (2,), 2), Variable("out/bias", (1,), 4))
)


def test_the_statistics_of_batch_normalisation_do_not_count() -> None:
    vector = np.array([3, 0, 1e6, 1e6, 4], np.float32)
    assert trained_norm(vector, LAYOUT) == 5


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", range(5))
def test_one_number_that_is_not_finite_shows_wherever_it_is(bad: float, place: int) -> None:
    vector = np.ones(5, np.float32)
    vector[place] = bad
    assert not np.isfinite(trained_norm(vector, LAYOUT))


@pytest.mark.parametrize("cuts", [[1], [2], [3], [4], [2, 4], [1, 2, 3, 4], [1, 3]])
def test_in_blocks_it_measures_the_same(cuts: list[int]) -> None:
    vector = np.array([3, 0, 1e6, 1e6, 4], np.float32)
    meter = NormMeter(LAYOUT)
    for begin, end in zip([0, *cuts], [*cuts, 5], strict=True):
        meter.add(vector[begin:end], begin)
    assert meter.norm == 5
