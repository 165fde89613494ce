"""Delayed Nesterov: gradients at once, momentum every K-th update."""

import numpy as np

from tests.rules.updates import begun, noise, steps, vector
from vcdl.rules.damping import Constant
from vcdl.rules.delayed_nesterov import DelayedNesterov
from vcdl.rules.outer_nesterov import OuterNesterov


def test_a_case_by_hand() -> None:
    rule = DelayedNesterov(server_learning_rate=0.5, momentum=0.5, momentum_share=0.0, buffer=2, staleness=Constant())
    server = begun(rule, vector(1.0))
    assert steps(rule, server, vector(4.0)) == [0.25]  # η/K
    assert server.tolist() == [[2.0], [1.0], [0.0]]  # 1 + ½·4/2: the gradient part, no momentum yet
    steps(rule, server, vector(8.0), first=2)
    # η·Δ/K = 3, η·m = 3, W = 2 + ½·8/2 + ½·3
    assert server.tolist() == [[5.5], [0.0], [3.0]]
    steps(rule, server, vector(0.0), first=3)
    assert server.tolist() == [[5.5], [0.0], [3.0]], "momentum waits for the next K-th"


def test_a_share_of_the_momentum_with_each_update_by_hand() -> None:
    rule = DelayedNesterov(server_learning_rate=1.0, momentum=0.5, momentum_share=0.25, buffer=2, staleness=Constant())
    server = begun(rule, vector(0.0))
    server[2] = 8.0
    steps(rule, server, vector(2.0))
    assert server.tolist() == [[2.0], [1.0], [8.0]]  # 2/2 + ¼·½·8
    steps(rule, server, vector(2.0), first=2)
    # m = ½·8 + 2 = 6; 2 + 2/2 + (1 − ¼·2 + ¼)·½·6
    assert server.tolist() == [[5.25], [0.0], [6.0]]


def test_over_k_updates_it_comes_to_the_outer_optimizers_step() -> None:
    deltas = [noise(number, 100) for number in range(8)]
    one, other = (
        DelayedNesterov(server_learning_rate=0.7, momentum=0.9, momentum_share=0.0, buffer=4, staleness=Constant()),
        OuterNesterov(server_learning_rate=0.7, momentum=0.9, buffer=4, staleness=Constant()),
    )
    server, outer = begun(one, noise(9, 100)), begun(other, noise(9, 100))
    steps(one, server, *deltas)
    steps(other, outer, *deltas)
    np.testing.assert_allclose(server, outer, atol=1e-5)
