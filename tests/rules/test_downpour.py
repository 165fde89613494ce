"""Downpour: what a client has learned is added."""

import pytest

from tests.rules.updates import update, vector
from vcdl.rules.downpour import Downpour


def test_a_case_by_hand() -> None:
    server, client, base = vector(1.0, -4.0), vector(4.0, 2.0), vector(2.0, 6.0)
    assert Downpour(server_learning_rate=0.5).apply(server, update(client, base)) == 0.5
    assert server.tolist() == [2.0, -6.0]  # 1 + ½·(4 − 2), −4 + ½·(2 − 6)
    assert (client.tolist(), base.tolist()) == ([4.0, 2.0], [2.0, 6.0]), "only W is changed"


def test_without_the_base_it_refuses_to_work() -> None:
    with pytest.raises(ValueError, match="needs the weights that the client started from"):
        Downpour(server_learning_rate=1.0).apply(vector(1.0), update(vector(2.0)))
