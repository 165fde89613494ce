"""DiLoCo's outer optimizer."""

from tests.rules.updates import begun, steps, vector
from vcdl.rules.damping import Constant
from vcdl.rules.outer_nesterov import OuterNesterov


def test_a_case_by_hand() -> None:
    rule = OuterNesterov(server_learning_rate=0.5, momentum=0.5, buffer=2, staleness=Constant())
    server = begun(rule, vector(1.0))
    steps(rule, server, vector(4.0), vector(8.0))
    # Δ = 6, m = 6, W = 1 + ½·(6 + ½·6); kept is η·m
    assert server.tolist() == [[5.5], [0.0], [3.0]]
    steps(rule, server, vector(0.0), first=3)
    assert server.tolist() == [[5.5], [0.0], [3.0]], "half a buffer moves nothing"
    steps(rule, server, vector(4.0), first=4)
    # Δ = 2, m = ½·6 + 2 = 5, W = 5.5 + ½·(2 + ½·5)
    assert server.tolist() == [[7.75], [0.0], [2.5]]


def test_a_constant_step_counts_one_over_one_minus_beta_times_in_the_long_run() -> None:
    rule = OuterNesterov(server_learning_rate=0.7, momentum=0.9, buffer=1, staleness=Constant())
    server = begun(rule, vector(0.0))
    steps(rule, server, *[vector(1.0)] * 200)
    before = float(server[0, 0])
    steps(rule, server, vector(1.0), first=201)
    assert abs(float(server[0, 0]) - before - 7.0) < 1e-3
