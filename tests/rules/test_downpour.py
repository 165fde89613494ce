"""Downpour: what a client has learned is added."""

import numpy as np
import pytest

from tests.rules.updates import noise, update, vector
from vcdl.rules.downpour import Downpour
from vcdl.rules.vc_asgd import VcAsgd


def test_a_case_by_hand() -> None:
    server, client, base = vector(1.0, -4.0), vector(4.0, 2.0), vector(2.0, 6.0)
    assert Downpour(server_learning_rate=0.5).apply(server, update(client, base)) == 0.5
    assert server.tolist() == [2.0, -6.0]  # 1 + ½·(4 − 2), −4 + ½·(2 − 6)
    assert (client.tolist(), base.tolist()) == ([4.0, 2.0], [2.0, 6.0]), "only W is changed"


def test_half_a_subtask_counts_half() -> None:
    server = vector(1.0, -4.0)
    assert (
        Downpour(server_learning_rate=0.5).apply(server, update(vector(4.0, 2.0), vector(2.0, 6.0), fraction=0.5))
        == 0.25
    )
    assert server.tolist() == [1.5, -5.0]


def test_with_the_base_for_w_it_is_vc_asgd() -> None:
    one, other, client = noise(0, 1000), noise(0, 1000), noise(1, 1000)
    Downpour(server_learning_rate=0.25).apply(one, update(client, other.copy()))
    VcAsgd(alpha=0.75).apply(other, update(client))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_a_client_that_learned_nothing_changes_nothing() -> None:
    server, base = noise(0, 1000), noise(1, 1000)
    Downpour(server_learning_rate=1.0).apply(server, update(base, base))
    assert server.tobytes() == noise(0, 1000).tobytes()


def test_without_the_base_it_refuses_to_work() -> None:
    with pytest.raises(ValueError, match="needs the weights that the client started from"):
        Downpour(server_learning_rate=1.0).apply(vector(1.0), update(vector(2.0)))
