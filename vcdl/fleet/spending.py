"""A fleet's money against the epochs of a run, and the parts of it that trained nothing; docs/fleet-cost.md."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.fleet.instance_history import InstanceHistory
from vcdl.fleet.ledger import Ledger
from vcdl.journal.events import (
    EpochClosed,
    Recorded,
    ResultRefused,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    WorkunitCancelled,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.history import EpochDetail

PARTS = ("training", "boot", "idle", "refused", "lost", "unknown")
"""`unknown`: instances whose BOINC host is unknown. `lost`: subtasks that failed, came too late or were preempted."""
_ENDS = {
    UpdateApplied: "training",
    UpdateRefused: "refused",
    ResultRefused: "refused",
    UpdateSuperseded: "lost",
    WorkunitFailed: "lost",
    WorkunitCancelled: "lost",
}
SPENDING_EVENTS = (*_ENDS, WorkunitSent, EpochClosed)


@dataclass(frozen=True)
class EpochCost:
    """The money that was paid when an epoch ended."""

    epoch: int
    value: float
    """The epoch's mean of the measure by which the run is judged."""
    usd: float


@dataclass(frozen=True)
class _Subtask:
    """A subtask on an instance."""

    began_s: float
    ended_s: float | None
    part: str


def epoch_costs(ledger: Ledger, journal: Iterable[Recorded], details: Iterable[EpochDetail]) -> list[EpochCost]:
    """The cost at the end of each epoch of a run. Raises FleetError."""
    values = {detail.epoch: detail.mean for detail in details}
    history = ledger.history()
    return [
        EpochCost(row.event.epoch, values[row.event.epoch], float(_paid(history.until(row.time_s))))
        for row in journal
        if isinstance(row.event, EpochClosed) and row.event.epoch in values
    ]


def parts_usd(
    ledger: Ledger, until_s: float, journals: Iterable[Sequence[Recorded]], hosts: Mapping[str, str]
) -> dict[str, float]:
    """What a fleet has paid until a Unix time, by PARTS. Raises FleetError.

    At any moment an instance's cost is shared by the subtasks that it has; without one it is boot, and later idle.
    """
    subtasks = _subtasks(journals, hosts)
    known, parts = set(hosts.values()), dict.fromkeys(PARTS, Fraction(0))
    for instance in ledger.history().until(until_s):
        if instance.launch.id not in known:
            parts["unknown"] += instance.charge().paid_usd
            continue
        full = instance.charge_before(instance.end_s).paid_usd
        paid = instance.charge().paid_usd / full if full else Fraction(0)  # less, if the cloud gives time for free
        for part, usd in _shares(instance, subtasks[instance.launch.id]):
            parts[part] += usd * paid
    return {part: float(usd) for part, usd in parts.items()}


def _subtasks(journals: Iterable[Sequence[Recorded]], hosts: Mapping[str, str]) -> Mapping[str, list[_Subtask]]:
    """The subtasks of each instance."""
    found: dict[str, list[_Subtask]] = defaultdict(list)
    for journal in journals:
        open_since: dict[str, tuple[str, float]] = {}
        for row in journal:
            event = row.event
            if isinstance(event, WorkunitSent) and event.host in hosts:
                open_since[event.workunit] = hosts[event.host], row.time_s
            elif (part := _ENDS.get(type(event))) and (begun := open_since.pop(_workunit(event), None)):
                found[begun[0]].append(_Subtask(begun[1], row.time_s, part))
        for id, began_s in open_since.values():
            found[id].append(_Subtask(began_s, None, "training"))
    return found


def _workunit(event: Any) -> str:
    return str(event.workunit)


def _shares(instance: InstanceHistory, subtasks: Sequence[_Subtask]) -> Iterable[tuple[str, Fraction]]:
    """The parts of an instance's cost."""
    begin_s, end_s = instance.launch.launched_s, instance.end_s
    first_s = min((one.began_s for one in subtasks), default=end_s)
    marks = {begin_s, end_s, *(one.began_s for one in subtasks), *(one.ended_s or end_s for one in subtasks)}
    before = Fraction(0)
    for from_s, to_s in pairwise(sorted(mark for mark in marks if begin_s <= mark <= end_s)):
        until = instance.charge_before(to_s).paid_usd
        usd, before = until - before, until
        at_work = [one for one in subtasks if one.began_s <= from_s and (one.ended_s is None or one.ended_s > from_s)]
        if not at_work:
            yield ("boot" if to_s <= first_s else "idle"), usd
        for one in at_work:
            is_lost = one.ended_s is None and instance.ending is not None
            yield ("lost" if is_lost else one.part), usd / len(at_work)


def _paid(instances: Iterable[InstanceHistory]) -> Fraction:
    return sum((instance.charge().paid_usd for instance in instances), Fraction(0))


def spending_lines(measure: str, epochs: Sequence[EpochCost], parts: Mapping[str, float]) -> list[str]:
    """Lines for a terminal."""
    lines = [f"{'epoch':>6}{measure:>14}{'$ so far':>12}"] if epochs else []
    lines += [f"{one.epoch:>6}{one.value:>14.4f}{one.usd:>12.4f}" for one in epochs]
    total = sum(parts.values())
    return [*lines, *(f"{part:<9}${usd:.4f}, {usd / total:.0%}" for part, usd in parts.items() if usd)]


def draw_spending(measure: str, epochs: Sequence[EpochCost], output: Path) -> None:
    """Draw the measure against the money, in the format that the suffix names. Raises RunFolderError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([one.usd for one in epochs], [one.value for one in epochs], marker="o", markersize=3.5)
    axes.set_xlabel("US dollars")
    axes.set_ylabel(f"validation {measure} (epoch's mean)")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    with folder_errors(output.parent), atomic_write(output) as temporary:
        figure.savefig(temporary, dpi=150)
