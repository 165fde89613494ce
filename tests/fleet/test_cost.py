"""A fleet's cost: the paper's fleet to the cent, savings, subtasks and waste, against hand computations."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from tests.fleet.example_prices import PRICES
from tests.recorded_run import applied as update
from vcdl.fleet.cost import cost_of, dollars
from vcdl.fleet.instance import Ending, Instance, InstanceState, Pool
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.ledger_rows import PricedRow
from vcdl.journal.events import Recorded, WorkunitSent

START_S = 1_700_000_000.0
HOUR_S = 3600.0
PAPER = Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1a")


def price_of(pool: Pool) -> PricedRow | None:
    row = PRICES.find(pool.type, pool.region, pool.zone)
    return None if row is None else priced(pool, row.at_most_usd_per_h, row.as_of.date().isoformat())


def priced(pool: Pool, spot: Decimal, as_of: str) -> PricedRow:
    rates = Decimal("0.3328"), spot, Decimal(0)
    return PricedRow(pool.type, pool.region, pool.zone, 0.0, *rates, as_of, "a test")


def instances(count: int, pool: Pool = PAPER) -> list[Instance]:
    return [
        Instance(id=f"i-{number}", pool=pool, vcpus=8, gpus=0, state=InstanceState.RUNNING, launched_s=START_S)
        for number in range(count)
    ]


def gone(one: Instance, after_s: float, ending: Ending) -> Instance:
    return replace(one, state=InstanceState.GONE, ended_s=START_S + after_s, ending=ending)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


def observe(ledger: Ledger, after_s: float, found: Sequence[Instance]) -> None:
    Ledger(ledger.path, price_of).record_found(found, START_S + after_s)


def sent(name: str, host: str, after_s: float) -> Recorded:
    return Recorded(0, START_S + after_s, WorkunitSent(name, host, 0))


def applied(name: str, after_s: float) -> Recorded:
    return Recorded(0, START_S + after_s, update(name, 1))


def workunit(shard: int) -> str:
    return f"j_e0001_s{shard:03d}_a0_v000000"


def test_the_papers_fleet_of_five_for_eight_hours_costs_what_the_paper_says(ledger: Ledger) -> None:
    fleet = instances(5)
    for minute in range(0, 8 * 60, 30):
        observe(ledger, minute * 60.0, fleet)
    running = cost_of(ledger, START_S + 8 * HOUR_S)
    assert (running.on_demand_usd_per_h, running.spot_usd_per_h) == (Decimal("1.6640"), Decimal("0.49920"))
    assert [dollars(running.on_demand_usd_per_h), dollars(running.spot_usd_per_h)] == ["$1.67", "$0.50"]
    observe(ledger, 8 * HOUR_S, [gone(one, 8 * HOUR_S, Ending.OURS) for one in fleet])
    cost = cost_of(ledger, START_S + 24 * HOUR_S)
    assert (cost.on_demand_usd, cost.spot_usd) == (Decimal("13.312"), Decimal("3.9936"))
    assert cost.saving == Decimal("0.7")
    assert (cost.vcpu_h, cost.instance_h) == (Decimal(320), Decimal(40))
    assert (cost.on_demand_usd / 8, cost.spot_usd / 8) == (Decimal("1.664"), Decimal("0.4992"))
    assert cost.lines()[2] == "so far   $4.00, $13.32 on demand, 70 % saved"


def test_a_day_with_interruptions_is_counted_as_by_hand(ledger: Ledger) -> None:
    one, two, three, four = instances(4)
    observe(ledger, 60, [one, two, three, four])
    observe(ledger, 7200, [gone(one, 1800, Ending.PREEMPTED), gone(two, 7000, Ending.PREEMPTED), three, four])
    observe(ledger, 9000, [gone(three, 8500, Ending.OURS)])
    cost = cost_of(ledger, START_S + 10_000)
    # One was free, two and three cost by the second, four was last seen after 7200 s and missed after 9000 s.
    seconds = 7000 + 8500 + 7200
    assert cost.spot_usd == _usd("0.09984", seconds)
    assert cost.on_demand_usd == _usd("0.3328", seconds + 1800)
    assert cost.uncertain_usd == _usd("0.09984", 1800)
    assert cost.wasted_usd == _usd("0.09984", 7000)
    assert cost.wasted_is_at_most
    assert (cost.instances, cost.live, cost.preempted) == (4, 0, 2)
    assert cost.spot_usd_per_h == 0


def _usd(price_usd_per_h: str, seconds: int) -> Decimal:
    exact = Fraction(Decimal(price_usd_per_h)) * seconds / 3600
    return Decimal(exact.numerator) / Decimal(exact.denominator)


def test_the_cost_of_a_subtask_divides_by_the_updates_applied_since_the_first_launch(ledger: Ledger) -> None:
    observe(ledger, 0, instances(5))
    early, late = applied(workunit(8), -60), applied(workunit(9), 9 * HOUR_S)
    journals = [
        [early, *(applied(workunit(shard), 60 * shard) for shard in range(3)), late],
        [applied(workunit(0), 60)],
    ]
    cost = cost_of(ledger, START_S + 8 * HOUR_S, journals)
    assert cost.subtasks == 4
    assert cost.per_subtask_usd == Decimal("3.9936") / 4
    assert cost_of(ledger, START_S + 8 * HOUR_S).per_subtask_usd is None


def test_preemption_wastes_the_cost_after_the_instances_last_finished_subtask(
    ledger: Ledger,
) -> None:
    one, two, three = instances(3)
    observe(ledger, 60, [one, two, three])
    ends = [gone(one, 9000, Ending.PREEMPTED), gone(two, 8000, Ending.PREEMPTED), gone(three, 9000, Ending.OURS)]
    observe(ledger, 9100, ends)
    journal = [
        sent(workunit(0), "host-1", 100),
        applied(workunit(0), 5000),
        sent(workunit(1), "host-1", 5000),
        sent(workunit(1), "host-3", 9500),  # sent again, as the first host was lost
        applied(workunit(1), 9900),
    ]
    hosts = {"host-1": "i-0", "host-2": "i-1", "host-3": "i-2"}
    cost = cost_of(ledger, START_S + 10_000, [journal], hosts)
    assert not cost.wasted_is_at_most
    assert cost.wasted_usd == _usd("0.09984", (9000 - 5000) + 8000)
    assert cost.lines()[-2] == "wasted   $0.34 by preemption"


def test_a_last_update_after_the_instances_end_leaves_no_waste(ledger: Ledger) -> None:
    (one,) = instances(1)
    observe(ledger, 9100, [gone(one, 9000, Ending.PREEMPTED)])
    journal = [sent(workunit(0), "host-1", 100), applied(workunit(0), 9050)]
    assert cost_of(ledger, START_S + 10_000, [journal], {"host-1": "i-0"}).wasted_usd == 0


def test_an_hour_that_aws_gives_back_is_no_waste(ledger: Ledger) -> None:
    (one,) = instances(1)
    observe(ledger, 3000, [gone(one, 2900, Ending.PREEMPTED)])
    cost = cost_of(ledger, START_S + 10_000)
    assert cost.spot_usd == cost.wasted_usd == 0
    assert cost.on_demand_usd == _usd("0.3328", 2900)
    assert cost.saving == 1


def test_an_instance_without_a_price_is_named_and_not_free(ledger: Ledger) -> None:
    observe(ledger, 0, instances(1, Pool("aws", "x9.huge", "us-east-1", "us-east-1a")))
    cost = cost_of(ledger, START_S + HOUR_S)
    assert cost.unpriced == ("x9.huge in us-east-1a",)
    assert cost.saving is None
    assert "missing  no price of x9.huge in us-east-1a: `vcdl fleet prices --refresh`" in cost.lines()


def test_an_empty_ledger_has_no_cost(ledger: Ledger) -> None:
    cost = cost_of(ledger, START_S)
    assert cost.instances == cost.spot_usd == 0
    assert (cost.saving, cost.oldest_price) == (None, None)
    assert cost.lines()


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("1.664", "$1.67"), ("0.4992", "$0.50"), ("13.31", "$13.31"), ("12345.678", "$12,345.68"), ("0", "$0.00"),
        ("0.000421", "$0.00043"), ("0.0996", "$0.100"), ("0.1", "$0.10"),
    ],
)  # fmt: skip
def test_dollars_are_rounded_up(amount: str, shown: str) -> None:
    assert dollars(Decimal(amount)) == shown
