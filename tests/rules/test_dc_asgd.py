"""DC-ASGD from weights, with the pseudo-gradient."""

import numpy as np

from tests.rules.updates import noise, update, vector
from vcdl.rules.dc_asgd import DcAsgd
from vcdl.rules.downpour import Downpour


def test_a_case_by_hand() -> None:
    server, client, base = vector(3.0, -4.0), vector(4.0, 2.0), vector(2.0, 6.0)
    assert DcAsgd(server_learning_rate=0.5, compensation=0.25).apply(server, update(client, base)) == 0.5
    # g = B − C = (−2, 4); λ·g²·(W − B) = ¼·4·1 = 1 and ¼·16·(−10) = −40; W − ½·(−2 + 1) = 3.5 and −4 − ½·(4 − 40) = 14
    assert server.tolist() == [3.5, 14.0]
    assert (client.tolist(), base.tolist()) == ([4.0, 2.0], [2.0, 6.0]), "only W is changed"


def test_half_a_subtask_counts_half() -> None:
    server = vector(3.0, -4.0)
    assert (
        DcAsgd(server_learning_rate=0.5, compensation=0.25).apply(
            server, update(vector(4.0, 2.0), vector(2.0, 6.0), fraction=0.5)
        )
        == 0.25
    )
    assert server.tolist() == [3.25, 5.0]


def test_without_compensation_it_is_downpour() -> None:
    one, other, client, base = noise(0, 1000), noise(0, 1000), noise(1, 1000), noise(2, 1000)
    DcAsgd(server_learning_rate=0.25, compensation=0.0).apply(one, update(client, base))
    Downpour(server_learning_rate=0.25).apply(other, update(client, base))
    assert one.tobytes() == other.tobytes()


def test_an_update_that_is_not_late_needs_no_compensation() -> None:
    one, other, client = noise(0, 1000), noise(0, 1000), noise(1, 1000)
    DcAsgd(server_learning_rate=0.25, compensation=2.0).apply(one, update(client, noise(0, 1000)))
    Downpour(server_learning_rate=0.25).apply(other, update(client, noise(0, 1000)))
    np.testing.assert_array_equal(one, other)
