"""What many hosts need of a BOINC server, from what one subtask costs each part of it.

The costs are measured (docs/measured/scale.md); all else follows by arithmetic. No server of this size was ever built.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

_USED = 0.6
"""Share of a processor or a line that is planned to be in use: the rest is for what comes unevenly."""
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Costs:
    """What one subtask costs. Processor times in seconds, measured with updates of 100 kB."""

    web_s: float = 0.035
    """Web server: 1.3 scheduler requests, two to the upload handler, three downloads, each CGI a process."""
    database_s: float = 0.018
    transitioner_s: float = 0.0015
    validator_s: float = 0.021
    """With the checker."""
    assimilator_s: float = 0.006
    work_generator_s: float = 0.007
    file_deleter_s: float = 0.0005
    assimilator_s_per_byte: float = 1.6e-9
    """Beyond an update of 100 kB: reading, decoding, folding."""
    validator_s_per_byte: float = 0.2e-9
    serial_commits: int = 4
    """Commits one after the other of the one transitioner, and of the one validator."""
    commit_s: float = 0.001
    """A commit that waits for a disk of data centres; with innodb_flush_log_at_trx_commit = 2 it waits for none."""
    client_overhead_s: float = 15.0
    """Fetching, starting, uploading, reporting, as a real client does."""
    row_bytes: float = 5_400.0
    """Rows of a subtask in the database, with indexes."""
    kept_days: float = 7.0
    """Until db_purge."""
    log_bytes: float = 3_000.0


@dataclass(frozen=True)
class Fleet:
    """Hosts, and what their job makes them do."""

    hosts: int
    train_s: float
    """Mean training of a subtask."""
    update_bytes: float
    """Upload; as many bytes of weights come down."""


@dataclass(frozen=True)
class Need:
    """What a fleet needs."""

    subtasks_per_s: float
    web_cores: float
    database_cores: float
    daemon_cores: float
    transitioners: int
    validators: int
    assimilators: int
    feeder_slots: int
    up_gbit_s: float
    down_gbit_s: float
    download_mirrors: int
    """Lines of 10 Gbit/s."""
    database_gb: float
    logs_gb_a_day: float

    @property
    def cores(self) -> float:
        return self.web_cores + self.database_cores + self.daemon_cores


def need_of(fleet: Fleet, costs: Costs = Costs()) -> Need:
    """What a fleet needs, planned so that nothing is in use for more than 60 %."""
    rate = fleet.hosts / (fleet.train_s + costs.client_overhead_s)
    more_bytes = max(0.0, fleet.update_bytes - 100_000)
    validator_s = costs.validator_s + costs.validator_s_per_byte * more_bytes
    assimilator_s = costs.assimilator_s + costs.assimilator_s_per_byte * more_bytes
    waits_s = costs.serial_commits * costs.commit_s
    bits_per_s = 8 * rate * fleet.update_bytes
    return Need(
        subtasks_per_s=rate,
        web_cores=rate * costs.web_s / _USED,
        database_cores=rate * costs.database_s / _USED,
        daemon_cores=rate
        * (costs.transitioner_s + validator_s + assimilator_s + costs.work_generator_s + costs.file_deleter_s)
        / _USED,
        transitioners=_several(rate * (costs.transitioner_s + waits_s)),
        validators=_several(rate * (validator_s + waits_s)),
        assimilators=_several(rate * assimilator_s),
        feeder_slots=max(100, math.ceil(4 * rate / 100) * 100),
        up_gbit_s=bits_per_s / 1e9,
        down_gbit_s=bits_per_s / 1e9,
        download_mirrors=_several(bits_per_s / 10e9),
        database_gb=rate * _DAY_S * costs.kept_days * costs.row_bytes / 1e9,
        logs_gb_a_day=rate * _DAY_S * costs.log_bytes / 1e9,
    )


def _several(load: float) -> int:
    """How many of something that one alone does for this share of its time; at least one."""
    return max(1, math.ceil(load / _USED))


def table(fleets: tuple[Fleet, ...], costs: Costs = Costs()) -> Iterator[str]:
    """The lines of the table in docs/measured/scale.md, a column a fleet."""
    needs = [need_of(fleet, costs) for fleet in fleets]
    yield _row("", (f"{fleet.hosts:,} hosts".replace(",", " ") for fleet in fleets))
    yield _row("--", ("--" for _ in fleets))
    yield _row("minutes of training", (f"{fleet.train_s / 60:g}" for fleet in fleets))
    yield _row("update", (_size(fleet.update_bytes) for fleet in fleets))
    yield _row("subtasks/s", (_rounded(need.subtasks_per_s) for need in needs))
    yield _row("cores of web servers", (_rounded(need.web_cores) for need in needs))
    yield _row("cores of the database", (_rounded(need.database_cores) for need in needs))
    yield _row("cores of daemons", (_rounded(need.daemon_cores) for need in needs))
    yield _row("transitioners", (str(need.transitioners) for need in needs))
    yield _row("validators", (str(need.validators) for need in needs))
    yield _row("assimilators' cores", (str(need.assimilators) for need in needs))
    yield _row("feeder slots", (str(need.feeder_slots) for need in needs))
    yield _row("Gbit/s up, and as many down", (_rounded(need.up_gbit_s) for need in needs))
    yield _row("download mirrors, 10 Gbit/s each", (str(need.download_mirrors) for need in needs))
    yield _row("GB of database, 7 days", (_rounded(need.database_gb) for need in needs))
    yield _row("GB of logs a day", (_rounded(need.logs_gb_a_day) for need in needs))


FLEETS = tuple(
    Fleet(hosts, 600.0, size) for size in (100_000.0, 20_000_000.0) for hosts in (10_000, 100_000, 1_000_000)
)


def _row(name: str, cells: Iterator[str]) -> str:
    return f"| {' | '.join([name, *cells])} |"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e3:g} kB" if size_bytes < 1e6 else f"{size_bytes / 1e6:g} MB"


def _rounded(number: float) -> str:
    """Two digits: the costs are not known better."""
    if number == 0:
        return "0"
    digits = 1 - math.floor(math.log10(abs(number)))
    return f"{round(number, digits):g}" if number < 1e5 else f"{round(number, digits):,.0f}".replace(",", " ")
