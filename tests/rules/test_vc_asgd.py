"""Equation (1), by hand and to the last bit."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from vcdl.rules.base import Update
from vcdl.rules.ramp import Ramp
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.wire.layout import Vector


def vector(*numbers: float) -> Vector:
    return np.array(numbers, np.float32)


def update(weights: Vector, epoch: int = 1, fraction: float = 1.0) -> Update:
    return Update(weights, epoch=epoch, staleness=0, samples=100, fraction=fraction)


@pytest.mark.parametrize(
    ("alpha", "epoch", "fraction", "weight", "expected"),
    [
        (0.75, 1, 1.0, 0.25, [1.75, -2.5]),  # 0.75·(1, −4) + 0.25·(4, 2)
        (0.75, 9, 1.0, 0.25, [1.75, -2.5]),  # a fixed α knows no epoch
        (0.0, 1, 1.0, 1.0, [4.0, 2.0]),  # the client's weights alone
        (0.75, 1, 0.5, 0.125, [1.375, -3.25]),  # half the subtask counts half
        ("var", 1, 1.0, 0.5, [2.5, -1.0]),  # var: α = 1/2
        ("var", 3, 1.0, 0.25, [1.75, -2.5]),  # var: α = 3/4
        ("var", 3, 0.5, 0.125, [1.375, -3.25]),
    ],
)
def test_cases_by_hand(
    alpha: float | Literal["var"], epoch: int, fraction: float, weight: float, expected: list[float]
) -> None:
    server, client = vector(1.0, -4.0), vector(4.0, 2.0)
    assert VcAsgd(alpha=alpha).apply(server, update(client, epoch, fraction)) == weight
    assert server.tolist() == expected
    assert client.tolist() == [4.0, 2.0], "the upload is left as it is"


def test_var_gives_later_epochs_less_and_staleness_and_samples_do_not_matter() -> None:
    var, c = VcAsgd(), vector(0.0)
    assert [var.client_weight(update(c, epoch)) for epoch in (1, 2, 3, 9)] == pytest.approx([1 / 2, 1 / 3, 1 / 4, 0.1])
    one, other = np.ones(3, np.float32), np.ones(3, np.float32)
    some = update(np.zeros(3, np.float32))
    VcAsgd(alpha=0.7).apply(one, some)
    VcAsgd(alpha=0.7).apply(other, replace(some, staleness=99, samples=1))
    assert one.tobytes() == other.tobytes()


def test_a_ramp_moves_alpha_with_every_update_of_the_job() -> None:
    rule = VcAsgd(alpha=Ramp.model_validate({"from": 0.25, "to": 0.75}))
    one = replace(update(vector(4.0, 2.0)), updates=5)
    weights = [rule.client_weight(replace(one, number=number)) for number in (1, 2, 3, 4, 5)]
    assert weights == [0.75, 0.625, 0.5, 0.375, 0.25]
    server = vector(1.0, -4.0)
    assert rule.apply(server, replace(one, number=5, fraction=0.5)) == 0.125
    assert server.tolist() == [1.375, -3.25]
