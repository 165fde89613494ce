"""Read a file of hosts with measured speeds, for `vcdl plan --hosts`; docs/planner.md explains its keys."""

from pathlib import Path
from typing import Annotated

from vcdl.planner.forecast import Choice
from vcdl.planner.throughput import HostType
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import HOSTS
from vcdl.yaml_schema.section import Section, list_of_sections, load_section

_NotNegative = Annotated[float, kinds.at_least(0.0)]


class HostSettings(Section):
    """Hosts of one type."""

    name: Annotated[str, kinds.text(r"[\w.][\w .+/-]{0,60}", "a name")]
    count: Annotated[int, kinds.whole(1, 1_000_000)] = 1
    slots: Annotated[int, kinds.whole(1, 10_000)] = 1
    """Number of subtasks that one host trains at a time."""
    samples_per_s: Annotated[float, kinds.at_least(1e-6)]
    """Samples a second of one slot, as `vcdl hosts` or `vcdl profile` measured it."""
    fixed_s: _NotNegative = 0.0
    """Seconds of a subtask in addition to its training."""
    away_s: _NotNegative = 0.0
    """Seconds of a subtask's transfers."""
    usd_per_h: _NotNegative = 0.0
    spot_usd_per_h: _NotNegative | None = None


class HostsFile(Section):
    """All hosts that a job could have."""

    hosts: Annotated[tuple[HostSettings, ...], list_of_sections(HostSettings)]

    def choice(self) -> Choice:
        """Return all hosts as one choice."""
        types = tuple(
            HostType(one.name, one.count, one.fixed_s, 1.0 / one.samples_per_s, one.away_s, one.slots, one.slots)
            for one in self.hosts
        )
        listed = sum(one.usd_per_h * one.count for one in self.hosts)
        # A type without a spot price is paid for at its list price among the others.
        spot = [one.usd_per_h if one.spot_usd_per_h is None else one.spot_usd_per_h for one in self.hosts]
        is_spot = any(one.spot_usd_per_h is not None for one in self.hosts)
        together = sum(price * one.count for price, one in zip(spot, self.hosts, strict=True))
        name = ", ".join(f"{one.count} × {one.name}" for one in self.hosts)
        return Choice(name, types, listed, together if is_spot else None)


def load_hosts(path: Path) -> HostsFile:
    """Read a file of hosts.

    Raises:
        JobError: A line for each mistake.
    """
    return load_section(HostsFile, HOSTS, path)
