"""The ledger of a fleet in real files: rows that count once, crashes, and several writers."""

import json
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from tests.full_disk import files_limited_to
from vcdl.errors import FleetError
from vcdl.fleet.instance import Ending, Instance, InstanceState, Pool
from vcdl.fleet.instance_history import InstanceHistory
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.ledger_rows import PricedRow

POOL = Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1a", "subnet-1")
RATES = Decimal("0.3328"), Decimal("0.09984"), Decimal(0)
PRICE = PricedRow("t3.2xlarge", "us-east-1", "us-east-1a", 0.0, *RATES, "2026-01-01", "a test")
START_S = 1_000_000.0
SPOT = Fraction(9984, 100_000)


def price_of(pool: Pool) -> PricedRow | None:
    return PRICE


def instance(id: str = "i-1", launched_s: float = START_S) -> Instance:
    return Instance(id=id, pool=POOL, vcpus=8, gpus=0, state=InstanceState.RUNNING, launched_s=launched_s)


def ended(id: str, ended_s: float | None, ending: Ending | None, state: InstanceState = InstanceState.GONE) -> Instance:
    return replace(instance(id), state=state, ended_s=ended_s, ending=ending)


def observe(ledger: Ledger, at_s: float, *found: Instance) -> None:
    ledger.record_found(found, at_s)


def the_instance(ledger: Ledger, until_s: float = START_S + 7200) -> InstanceHistory:
    (life,) = ledger.history().until(until_s)
    return life


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "fleet" / "ledger.jsonl", price_of)


def test_a_launch_that_is_recorded_twice_counts_once(ledger: Ledger) -> None:
    ledger.record_launched([instance()], START_S)
    ledger.record_launched([instance()], START_S)
    observe(ledger, START_S + 10, instance())
    observe(ledger, START_S + 20, instance())
    assert the_instance(ledger, START_S + 3600).charge().spot_usd == SPOT


def test_an_end_that_is_recorded_twice_counts_at_its_first_time(ledger: Ledger) -> None:
    observe(ledger, START_S + 10, instance())
    observe(ledger, START_S + 4000, ended("i-1", START_S + 3900, Ending.OURS, InstanceState.STOPPING))
    observe(ledger, START_S + 5000, ended("i-1", START_S + 4900, Ending.OURS))
    observe(ledger, START_S + 6000)
    life = the_instance(ledger)
    assert (life.end_s, life.ending, life.latest_end_s) == (START_S + 3900, Ending.OURS, START_S + 3900)


def test_a_later_row_may_tell_who_ended_an_instance(ledger: Ledger) -> None:
    observe(ledger, START_S + 1000, ended("i-1", None, None, InstanceState.STOPPING))
    assert the_instance(ledger).ending is Ending.UNKNOWN
    assert the_instance(ledger).end_s == START_S + 1000
    observe(ledger, START_S + 1100, ended("i-1", START_S + 990, Ending.PREEMPTED))
    assert (the_instance(ledger).end_s, the_instance(ledger).ending) == (START_S + 990, Ending.PREEMPTED)
    assert the_instance(ledger).charge().spot_usd == 0


def test_an_instance_that_vanished_ended_when_last_seen_with_an_upper_bound(ledger: Ledger) -> None:
    for at_s in (10, 1800, 3600):
        observe(ledger, START_S + at_s, instance())
    observe(ledger, START_S + 5400)
    observe(ledger, START_S + 7000)
    life = the_instance(ledger)
    assert (life.end_s, life.ending, life.latest_end_s) == (START_S + 3600, Ending.UNKNOWN, START_S + 5400)
    assert life.charge().spot_usd == SPOT
    assert life.charge_at_most().spot_usd == SPOT * 3 / 2


def test_an_instance_that_was_hidden_for_a_while_is_live(ledger: Ledger) -> None:
    observe(ledger, START_S + 10, instance())
    observe(ledger, START_S + 20)
    observe(ledger, START_S + 30, instance())
    assert the_instance(ledger, START_S + 3600).ending is None
    assert the_instance(ledger, START_S + 3600).charge().spot_usd == SPOT


def test_a_launched_instance_that_was_never_shown_costs_the_minimum(ledger: Ledger) -> None:
    ledger.record_launched([instance()], START_S)
    observe(ledger, START_S + 600)
    life = the_instance(ledger)
    assert (life.end_s, life.latest_end_s) == (START_S, START_S + 600)
    assert life.charge().spot_usd == SPOT / 60


def test_an_instance_that_is_seen_live_after_its_end_has_not_ended(ledger: Ledger) -> None:
    ledger.record_launched([ended("i-1", START_S + 100, Ending.OURS, InstanceState.STOPPING)], START_S + 100)
    observe(ledger, START_S + 130, instance())
    assert the_instance(ledger).ending is None
    observe(ledger, START_S + 200, ended("i-1", START_S + 190, Ending.OURS))
    assert the_instance(ledger).end_s == START_S + 190


def test_prices_are_recorded_only_when_they_change(ledger: Ledger) -> None:
    dearer = replace(PRICE, spot_usd_per_h=Decimal("0.2"))
    prices = [PRICE, PRICE, dearer, dearer]
    for number, price in enumerate(prices):
        at_s = START_S + 1800 * number
        at_price = Ledger(ledger.path, lambda _, p=price: p)  # type: ignore[misc]
        observe(at_price, at_s, instance())
    assert len(the_instance(ledger).rates) == 2
    assert the_instance(ledger, START_S + 7200).charge().spot_usd == SPOT + Fraction(2, 10)


def test_an_instance_without_a_price_gets_one_that_is_known_later(ledger: Ledger) -> None:
    observe(Ledger(ledger.path), START_S, instance())
    assert the_instance(ledger).rates == ()
    observe(ledger, START_S + 3600, instance())
    assert the_instance(ledger, START_S + 3600).charge().spot_usd == SPOT


def test_a_file_cut_anywhere_is_read_and_continued_to_the_same_result(ledger: Ledger, tmp_path: Path) -> None:
    """The next pass repairs the file of a writer that was killed anywhere in a write."""
    observe(ledger, START_S, instance("i-1"), instance("i-2"))
    content = (tmp_path / "fleet" / "ledger.jsonl").read_bytes()
    cut_file = tmp_path / "cut.jsonl"
    for length in range(0, len(content), 5):
        cut_file.write_bytes(content[:length])
        Ledger(cut_file).history()
        observe(Ledger(cut_file, price_of), START_S, instance("i-1"), instance("i-2"))
        charged = [life.charge().spot_usd for life in Ledger(cut_file).history().until(START_S + 3600)]
        assert charged == [SPOT, SPOT], length


def test_a_ledger_whose_rows_begin_with_their_kind_is_read(tmp_path: Path) -> None:
    """As they did until November 2026."""
    path = tmp_path / "ledger.jsonl"
    path.write_text(
        '{"kind":"launched","id":"i-1","cloud":"aws","type":"t3.large","region":"r","zone":"z","vcpus":2,"gpus":0,'
        '"cpu_credits":"standard","launched_s":1700000000.0,"on_demand":false}\n'
        '{"kind":"priced","type":"t3.large","region":"r","zone":"z","since_s":1700000000.0,'
        '"on_demand_usd_per_h":"0.0832","spot_usd_per_h":"0.0249","extras_usd_per_h":"0.007192",'
        '"as_of":"2026-11-21","source":"x"}\n'
        '{"kind":"seen","at_s":1700000005.0,"ids":["i-1"]}\n'
        '{"kind":"seen","at_s":1700000006.0,"ids":null}\n'
        '{"kind":"ended","id":"i-1","ended_s":1700003600.0,"ending":"ours"}\n'
    )
    (one,) = Ledger(path).history().until(1.8e9)
    assert (one.lifetime_s, one.ending) == (3600, Ending.OURS)
    assert one.charge().paid_usd == Fraction("0.032092")


def test_a_damaged_line_is_refused_with_its_number(ledger: Ledger, tmp_path: Path) -> None:
    observe(ledger, START_S, instance())
    path = tmp_path / "fleet" / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\xff{}\n" + b"".join(lines[1:]))
    with pytest.raises(FleetError, match="line 2, is not a row of a ledger"):
        Ledger(path).history()


@pytest.mark.parametrize(
    "line",
    [
        "[]", "{}", '{"kind":"launched"}', '{"kind":"new"}', '{"kind":"ended","id":"i","ended_s":1,"ending":"x"}',
        '{"kind":"ended","id":"i","ended_s":"soon","ending":"ours"}', '{"kind":"seen","at_s":NaN,"ids":["i"]}',
        '{"kind":"seen","at_s":1,"ids":[["i"]]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_line_that_is_no_row_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "ledger.jsonl").write_text(line + "\n")
    with pytest.raises(FleetError, match="line 1, is not a row"):
        Ledger(tmp_path / "ledger.jsonl").history()


def test_the_end_of_an_instance_that_was_never_launched_is_passed_over(ledger: Ledger, tmp_path: Path) -> None:
    observe(ledger, START_S, instance())
    with (tmp_path / "fleet" / "ledger.jsonl").open("a") as file:
        file.write('{"kind":"ended","id":"i-stranger","ended_s":1,"ending":"gave_up"}\n')
    history = Ledger(tmp_path / "fleet" / "ledger.jsonl", price_of).history()
    assert history.failures(START_S + 10, 60.0, ()) == []
    assert len(history.until(START_S + 10)) == 1


def test_a_ledger_that_somebody_replaced_is_an_error(ledger: Ledger, tmp_path: Path) -> None:
    observe(ledger, START_S, instance())
    (tmp_path / "fleet" / "ledger.jsonl").write_bytes(b"")
    with pytest.raises(FleetError, match="became shorter"):
        observe(ledger, START_S + 10, instance())


def test_a_full_disk_is_an_error_and_leaves_no_half_line(ledger: Ledger, tmp_path: Path) -> None:
    observe(ledger, START_S, instance("i-1"))
    path = tmp_path / "fleet" / "ledger.jsonl"
    before = path.read_bytes()
    with files_limited_to(len(before) + 50), pytest.raises(FleetError, match="cannot be read or written"):
        observe(ledger, START_S + 10, instance("i-1"), instance("i-2"))
    assert path.read_bytes() == before
    observe(ledger, START_S + 20, instance("i-1"), instance("i-2"))
    assert len(ledger.history().until(START_S + 3600)) == 2


def test_a_second_writer_repeats_nothing_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first, second = Ledger(path, price_of), Ledger(path, price_of)
    observe(first, START_S, instance("i-1"))
    observe(second, START_S + 1, instance("i-1"), instance("i-2"))
    observe(first, START_S + 2, instance("i-1"), instance("i-2"))
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert sorted(kinds) == ["launched", "launched", "priced", "seen", "seen", "seen"]
