"""DC-ASGD from weights, with the pseudo-gradient."""

from tests.rules.updates import update, vector
from vcdl.rules.dc_asgd import DcAsgd


def test_a_case_by_hand() -> None:
    server, client, base = vector(3.0, -4.0), vector(4.0, 2.0), vector(2.0, 6.0)
    assert DcAsgd(server_learning_rate=0.5, compensation=0.25).apply(server, update(client, base)) == 0.5
    # g = B − C = (−2, 4); λ·g²·(W − B) = ¼·4·1 = 1 and ¼·16·(−10) = −40; W − ½·(−2 + 1) = 3.5 and −4 − ½·(4 − 40) = 14
    assert server.tolist() == [3.5, 14.0]
    assert (client.tolist(), base.tolist()) == ([4.0, 2.0], [2.0, 6.0]), "only W is changed"
