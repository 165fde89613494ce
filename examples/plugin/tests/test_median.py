"""The median keeps what every rule promises, and is the median."""

import numpy as np
from vcdl_example.median import Median

from vcdl.rules.base import Update
from vcdl.testing.rules import RuleContract


class TestMedian(RuleContract):
    rules = (Median(), Median(buffer=5), Median(buffer=1))


def test_one_that_lies_is_outvoted() -> None:
    rule = Median(buffer=3)
    server = rule.state.rows(rule.state.begun(np.array([1.0], np.float32)))
    for number, step in enumerate((1.0, -100.0, 3.0), start=1):
        client, base = np.array([1.0 + step], np.float32), np.array([1.0], np.float32)
        rule.apply(server, Update(client, epoch=1, staleness=0, samples=10, fraction=1.0, number=number, base=base))
    assert server[0].tolist() == [2.0]
