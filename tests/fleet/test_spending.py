"""Money against epochs, and its parts, against hand computations."""

import pytest

from tests.fleet.test_cost import HOUR_S, START_S, applied, gone, instances, ledger, observe, sent, workunit
from vcdl.fleet.cost import epoch_costs, parts_usd, spending_lines
from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger import Ledger
from vcdl.journal.events import EpochClosed, Recorded, UpdateRefused
from vcdl.journal.monitor import EpochDetail

__all__ = ["ledger"]
HOSTS = {"host-0": "i-0"}
USD_PER_H = 0.09984


def refused(name: str, after_s: float) -> Recorded:
    return Recorded(0, START_S + after_s, UpdateRefused(name, "norm", "", 1))


def one_hour(ledger: Ledger, ending: Ending) -> list[Recorded]:
    """An instance that boots for 10 min, trains for 20, is refused 10, idles 10, and ends in a subtask of 10."""
    (one,) = instances(1)
    observe(ledger, 0, [one])
    observe(ledger, HOUR_S, [gone(one, HOUR_S, ending)])
    return [
        sent(workunit(1), "host-0", 600),
        applied(workunit(1), 1800),
        sent(workunit(2), "host-0", 1800),
        refused(workunit(2), 2400),
        sent(workunit(3), "host-0", 3000),
    ]


def test_each_minute_of_an_instance_is_in_one_part(ledger: Ledger) -> None:
    journal = one_hour(ledger, Ending.OURS)
    parts = parts_usd(ledger, START_S + HOUR_S, [journal], HOSTS)
    minutes = {part: usd / USD_PER_H * 60 for part, usd in parts.items()}
    assert minutes == pytest.approx({"training": 20, "boot": 10, "idle": 10, "refused": 10, "lost": 10, "unknown": 0})


def test_subtasks_at_the_same_time_share_the_cost(ledger: Ledger) -> None:
    journal = one_hour(ledger, Ending.OURS)
    both = [sent(workunit(4), "host-0", 600), *journal, applied(workunit(4), 2400)]
    parts = parts_usd(ledger, START_S + HOUR_S, [both], HOSTS)
    assert parts["refused"] == pytest.approx(USD_PER_H * 5 / 60)
    assert sum(parts.values()) == pytest.approx(USD_PER_H)


def test_an_instance_without_a_known_host_is_unknown_and_time_for_free_is_in_no_part(ledger: Ledger) -> None:
    journal = one_hour(ledger, Ending.OURS)
    parts = parts_usd(ledger, START_S + HOUR_S, [journal], {})
    assert parts["unknown"] == pytest.approx(USD_PER_H)
    assert parts["boot"] == 0


def test_an_epoch_costs_what_was_paid_when_it_ended(ledger: Ledger) -> None:
    journal = one_hour(ledger, Ending.OURS)
    closed = [Recorded(0, START_S + 60 * minute, EpochClosed(number, number)) for number, minute in ((1, 30), (2, 90))]
    details = [EpochDetail(number, 0.5 + number / 10, 0.0, 1.0, 0.0) for number in (1, 2)]
    epochs = epoch_costs(ledger, [*journal, *closed], details)
    assert [(one.epoch, one.value) for one in epochs] == [(1, 0.6), (2, 0.7)]
    assert [one.usd for one in epochs] == pytest.approx([USD_PER_H / 2, USD_PER_H])
    assert spending_lines("accuracy", epochs, {"boot": 0.25, "idle": 0.0, "training": 0.75}) == [
        " epoch      accuracy    $ so far",
        "     1        0.6000      0.0499",
        "     2        0.7000      0.0998",
        "boot     $0.2500, 25%",
        "training $0.7500, 75%",
    ]
