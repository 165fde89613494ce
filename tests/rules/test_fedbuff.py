"""FedBuff: W moves when K updates are there."""

from tests.rules.updates import begun, steps, update, vector
from vcdl.rules.damping import Constant, Polynomial
from vcdl.rules.fedbuff import FedBuff


def test_a_case_by_hand() -> None:
    rule, server = (
        FedBuff(server_learning_rate=2.0, buffer=2, staleness=Constant()),
        begun(FedBuff(server_learning_rate=2.0, buffer=2, staleness=Constant()), vector(1.0, -4.0)),
    )
    assert steps(rule, server, vector(1.0, 2.0)) == [1.0]  # η/K
    assert server.tolist() == [[1.0, -4.0], [1.0, 2.0]], "W stands still, the sum waits"
    steps(rule, server, vector(3.0, -1.0), first=2)
    assert server.tolist() == [[5.0, -3.0], [0.0, 0.0]]  # W + 2·(1 + 3)/2, W + 2·(2 − 1)/2


def test_a_late_or_partial_update_counts_less() -> None:
    rule = FedBuff(server_learning_rate=1.0, buffer=2, staleness=Polynomial(exponent=0.5))
    server = begun(rule, vector(0.0))
    late = update(vector(1.0), vector(0.0), staleness=3, fraction=0.5, number=1)
    assert rule.apply(server, late) == 0.125  # ½·4^−½·½
    assert server.tolist() == [[0.0], [0.125]]
