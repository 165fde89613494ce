"""Centred clipping over a buffer, and what clipping does to a step."""

from dataclasses import replace

import numpy as np
import pytest

from tests.rules.updates import begun, noise, steps, update, vector
from vcdl.rules.base import Measured
from vcdl.rules.centred_clipping import CentredClipping
from vcdl.rules.downpour import Downpour
from vcdl.rules.fedasync import Constant, Polynomial
from vcdl.rules.measuring import shortening


def test_a_case_by_hand() -> None:
    rule = CentredClipping(0.5, 2, 1.0, Constant())
    server = begun(rule, vector(10.0))
    server[1] = 4.0
    steps(rule, server, vector(6.0))
    assert server.tolist() == [[10.0], [4.0], [1.0]]  # (6 − 4)/2 waits
    long = replace(update(vector(84.0), vector(0.0), number=2), measured=Measured(80.0, 20.0))
    assert rule.apply(server, long) == 0.0625  # κ = 20/80; ½·¼/2
    assert server.tolist() == [[17.5], [15.0], [0.0]]  # v = 4 + 1 + ¼·80/2, W = 10 + ½·15


def test_a_late_or_partial_update_counts_less() -> None:
    rule = CentredClipping(1.0, 2, 1.0, Polynomial(0.5))
    server = begun(rule, vector(0.0))
    late = replace(update(vector(8.0), vector(0.0), staleness=3, fraction=0.5), measured=Measured(1.0, 1.0))
    assert rule.apply(server, late) == 0.125
    assert server.tolist() == [[0.0], [0.0], [1.0]]


def test_of_one_with_nothing_clipped_it_is_downpour() -> None:
    rule, plain = CentredClipping(0.25, 1, 1.0, Constant()), noise(9, 1000)
    server, deltas = begun(rule, noise(9, 1000)), [noise(number, 1000) for number in range(4)]
    assert steps(rule, server, *deltas) == steps(Downpour(0.25), plain, *deltas)
    np.testing.assert_allclose(server[0], plain, atol=1e-6)


def test_what_is_measured_is_the_way_from_the_centre() -> None:
    rule = CentredClipping(1.0, 2, 1.0, Constant())
    server = begun(rule, vector(9.0, 9.0))
    server[1] = vector(1.0, 2.0)
    step = rule.step(server, update(vector(5.0, 5.0), vector(1.0, 1.0)))
    assert step.tolist() == [3.0, 2.0]


@pytest.mark.parametrize(
    ("length", "usual", "factor", "kappa"),
    [(1.0, 2.0, 1.0, 1.0), (2.0, 2.0, 1.0, 1.0), (8.0, 2.0, 1.0, 0.25), (8.0, 2.0, 2.0, 0.5), (0.0, 0.0, 1.0, 1.0)],
)
def test_a_step_is_at_most_so_many_times_as_long_as_usual(
    length: float, usual: float, factor: float, kappa: float
) -> None:
    assert shortening(Measured(length, usual), factor) == kappa


def test_without_a_measure_it_refuses_to_work() -> None:
    rule = CentredClipping(1.0, 2, 1.0, Constant())
    with pytest.raises(ValueError, match="needs the upload's length"):
        rule.apply(begun(rule, vector(1.0)), update(vector(2.0), vector(0.0)))
