"""FedAsync and its three ways to damp what is late."""

import numpy as np
import pytest

from tests.rules.updates import noise, update, vector
from vcdl.rules.damping import Constant, Damping, Hinge, Polynomial
from vcdl.rules.fedasync import FedAsync
from vcdl.rules.vc_asgd import VcAsgd


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


def test_a_partial_update_counts_by_its_fraction() -> None:
    server = vector(1.0, -4.0)
    weight = FedAsync(mixing=0.5, staleness=Polynomial(exponent=0.5)).apply(
        server, update(vector(4.0, 2.0), staleness=3, fraction=0.5)
    )
    assert (weight, server.tolist()) == (0.125, [1.375, -3.25])


@pytest.mark.parametrize("damping", [Constant(), Polynomial(), Hinge()])
def test_the_mixing_rate_is_the_same_for_every_update(damping: Damping) -> None:
    """Elsewhere it was multiplied by s(τ) each time, and decayed for ever."""
    rule, server = FedAsync(mixing=0.6, staleness=damping), vector(0.0)
    late = [rule.apply(server, update(vector(1.0), staleness=20)) for _ in range(100)]
    assert len(set(late)) == 1
    assert rule.apply(server, update(vector(1.0))) == 0.6


def test_without_damping_it_is_vc_asgd() -> None:
    for alpha in (0.4, 0.1, 0.95, 0.999):
        one, other, client = noise(0, 1000), noise(0, 1000), noise(1, 1000)
        FedAsync(mixing=1 - alpha, staleness=Constant()).apply(one, update(client, staleness=7))
        VcAsgd(alpha=alpha).apply(other, update(client))
        assert one.tobytes() == other.tobytes()


def test_an_update_that_is_not_late_counts_in_full_whatever_damps() -> None:
    results = []
    for damping in (Constant(), Polynomial(), Hinge()):
        server = noise(0, 1000)
        FedAsync(mixing=0.6, staleness=damping).apply(server, update(noise(1, 1000)))
        results.append(server)
    assert all(np.array_equal(results[0], other) for other in results)
