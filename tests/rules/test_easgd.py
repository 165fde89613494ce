"""EASGD as VC-ASGD's paper compares it."""

from tests.rules.updates import noise, update, vector
from vcdl.rules.easgd import Easgd
from vcdl.rules.vc_asgd import VcAsgd


def test_a_case_by_hand() -> None:
    server = vector(1.0, -4.0)
    assert Easgd(moving_rate=0.25).apply(server, update(vector(4.0, 2.0))) == 0.25
    assert server.tolist() == [1.75, -2.5]  # 1 + ¼·(4 − 1), −4 + ¼·(2 + 4)


def test_it_is_vc_asgd_with_one_minus_its_rate() -> None:
    one, other, client = noise(0, 1000), noise(0, 1000), noise(1, 1000)
    Easgd(moving_rate=1 - 0.999).apply(one, update(client))
    VcAsgd(alpha=0.999).apply(other, update(client))
    assert one.tobytes() == other.tobytes()
