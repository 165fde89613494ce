"""The three ways to damp what is late."""

import pytest

from vcdl.rules.damping import Constant, Damping, Hinge, Polynomial


@pytest.mark.parametrize(
    ("damping", "staleness", "factor"),
    [
        (Constant(), 0, 1.0),
        (Constant(), 99, 1.0),
        (Polynomial(exponent=0.5), 0, 1.0),
        (Polynomial(exponent=0.5), 3, 0.5),  # 4^−½
        (Polynomial(exponent=1.0), 3, 0.25),
        (Hinge(slope=10.0, threshold=4), 0, 1.0),
        (Hinge(slope=10.0, threshold=4), 4, 1.0),
        (Hinge(slope=10.0, threshold=4), 5, 1 / 11),
        (Hinge(slope=0.5, threshold=2), 4, 0.5),
        (
            Polynomial(exponent=0.5),
            -1,
            1.0,
        ),  # a store that was put back may count fewer versions than a client has seen
        (Hinge(slope=10.0, threshold=0), -1, 1.0),
    ],
)
def test_how_much_is_left_to_a_late_update(damping: Damping, staleness: int, factor: float) -> None:
    assert damping.factor(staleness) == factor
