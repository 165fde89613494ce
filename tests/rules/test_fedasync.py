"""FedAsync and its three ways to damp what is late."""

import pytest

from tests.rules.updates import update, vector
from vcdl.rules.damping import Constant, Damping, Hinge, Polynomial
from vcdl.rules.fedasync import FedAsync


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


def test_a_case_by_hand() -> None:
    server = vector(1.0, -4.0)
    weight = FedAsync(mixing=0.5, staleness=Polynomial(exponent=0.5)).apply(
        server, update(vector(4.0, 2.0), staleness=3)
    )
    assert (weight, server.tolist()) == (0.25, [1.75, -2.5])  # ½·4^−½ = ¼


@pytest.mark.parametrize("damping", [Constant(), Polynomial(), Hinge()])
def test_the_mixing_rate_is_the_same_for_every_update(damping: Damping) -> None:
    """Elsewhere it was multiplied by s(τ) each time, and decayed for ever."""
    rule, server = FedAsync(mixing=0.6, staleness=damping), vector(0.0)
    late = [rule.apply(server, update(vector(1.0), staleness=20)) for _ in range(100)]
    assert len(set(late)) == 1
    assert rule.apply(server, update(vector(1.0))) == 0.6
