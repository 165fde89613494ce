"""The median over a buffer."""

import numpy as np
import pytest

from tests.rules.updates import begun, noise, steps, vector
from vcdl.rules.base import Rule
from vcdl.rules.downpour import Downpour
from vcdl.rules.fedasync import Constant
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.median import Median


def test_a_case_by_hand() -> None:
    rule = Median(0.5, 3, Constant())
    server = begun(rule, vector(10.0, 0.0))
    steps(rule, server, vector(4.0, 90.0), vector(-90.0, 2.0), vector(70.0, -9.0))
    assert server.tolist() == [[12.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("buffer", [1, 2, 3, 4, 9, 10])
def test_it_is_the_median_of_the_steps(buffer: int) -> None:
    deltas = [noise(number, 10_000) for number in range(buffer)]
    rule = Median(0.7, buffer, Constant())
    server = begun(rule, np.zeros(10_000, np.float32))
    steps(rule, server, *deltas)
    np.testing.assert_allclose(np.atleast_2d(server)[0], 0.7 * np.median(deltas, axis=0), atol=1e-5)


@pytest.mark.parametrize(("buffer", "other"), [(1, Downpour(0.25)), (2, FedBuff(0.25, 2, Constant()))])
def test_of_one_it_is_downpour_and_of_two_fedbuff(buffer: int, other: Rule) -> None:
    deltas = [noise(number, 1000) for number in range(4)]
    rule = Median(0.25, buffer, Constant())
    server, plain = begun(rule, noise(9, 1000)), begun(other, noise(9, 1000))
    assert steps(rule, server, *deltas) == steps(other, plain, *deltas)
    np.testing.assert_allclose(np.atleast_2d(server)[0], np.atleast_2d(plain)[0], atol=1e-6)
