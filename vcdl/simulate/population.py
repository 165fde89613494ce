"""Read populations of realistic hosts: when each is present, its speed, its link. Sources: docs/measured/planner.md.

A population is a mixture of groups, or a trace of the number of hosts. It replaces equal clients with exponential
absences. Virtual time 0 is Monday, 0:00 UTC.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, model_validator

from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import POPULATION
from vcdl.yaml_schema.section import SECTION_AS_YAML, Section, load_section

_AboveZero = Annotated[float, kinds.above_zero()]
_NotNegative = Annotated[float, kinds.at_least(0)]
_MOST_BYTES = 16_000_000
"""Largest trace that is read, because larger files are no traces: the longest public ones have a few hundred kilobytes.
"""


def _hours(raw: Any) -> tuple[float, float]:
    """Return two decoded hours of the day; raise ValueError for anything else."""
    if not isinstance(raw, list | tuple) or len(raw) != 2 or not all(0 <= float(hour) <= 24 for hour in raw):
        raise kinds.expected("two hours of the day, such as [8, 22]", raw)
    return float(raw[0]), float(raw[1])


def _zones(raw: Any) -> tuple[float, ...]:
    """Return decoded time zones in hours from UTC; raise ValueError for anything else."""
    if not isinstance(raw, list | tuple) or not raw or not all(-12 <= float(zone) <= 14 for zone in raw):
        raise kinds.expected("hours from UTC, such as [-5, 1]", raw)
    return tuple(map(float, raw))


class HostGroup(Section):
    """Hosts of one kind. A lognormal spread is the standard deviation of the logarithm."""

    share: _AboveZero = 1.0
    """The group's share of the population, relative to the other groups."""
    speed: _AboveZero = 1.0
    """Median speed, relative to the other groups; the population's mean is scaled to 1."""
    speed_spread: _NotNegative = 0.0
    on_h: _AboveZero | None = None
    """Mean hours of a session (Weibull); None: on whenever `hours` allow it."""
    on_shape: _AboveZero = 1.0
    """Weibull shape of the sessions: below 1, a few are very long."""
    off_h: _AboveZero = 1.0
    """Mean hours between sessions (exponential)."""
    hours: Annotated[tuple[float, float], BeforeValidator(_hours)] = (0.0, 24.0)
    """Hours of the local day in which hosts can be on; [20, 8] spans midnight."""
    weekend: Annotated[bool, kinds.true_or_false()] = False
    """Whether hosts can be on all day at weekends."""
    zones: Annotated[tuple[float, ...], BeforeValidator(_zones)] = (0.0,)
    """Time zones of the hosts, hours from UTC, with equal frequency."""
    stays_days: _AboveZero | None = None
    """Mean days until a host leaves for good and a new one replaces it (Weibull); None: all stay."""
    stays_shape: _AboveZero = 1.0
    loses_work: Annotated[bool, kinds.true_or_false()] = False
    """Whether a subtask is lost when a session ends, as on spot instances; otherwise it continues in the next."""
    up_mb_per_s: _AboveZero | None = None
    """Median upload rate of the links, megabytes a second; None: transfers take no time."""
    down_mb_per_s: _AboveZero | None = None
    link_spread: _NotNegative = 0.0


class Population(Section):
    """Describes when simulated hosts are on, and how fast they are.

    Exactly one is given: `groups` of hosts with random sessions, or a `trace` of the fraction of hosts that are on.
    """

    groups: Annotated[tuple[HostGroup, ...], SECTION_AS_YAML] = ()
    trace: tuple[tuple[float, float], ...] = ()
    """Moment in seconds and the fraction of the hosts that are on from then, in order; it repeats at its end."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Population":
        if bool(self.groups) == bool(self.trace):
            raise ValueError(f"expected either `groups` or a trace, got {'both' if self.groups else 'neither'}")
        return self


_STAYS = {"stays_days": 192.0, "stays_shape": 0.58}  # Heien, Kondo and Anderson, ICDCS 2011
_HOME = {"speed_spread": 0.45, "up_mb_per_s": 1.5, "down_mb_per_s": 8.0, "link_spread": 0.8}
_AROUND = [-8, -6, -5, 0, 1, 1, 1, 2, 8, 9]

BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "boinc": {
        "groups": [
            {"share": 0.44, "on_h": 72, "on_shape": 0.6, "off_h": 3, "zones": _AROUND, **_HOME, **_STAYS},
            {"share": 0.21, "on_h": 12, "on_shape": 0.6, "off_h": 8, "zones": _AROUND, **_HOME, **_STAYS},
            {"share": 0.35, "on_h": 8, "off_h": 2, "hours": [8, 24], "zones": _AROUND, **_HOME, **_STAYS},
        ]
    },
    "spot": {"groups": [{"on_h": 2.2, "on_shape": 0.6, "off_h": 1.4, "loses_work": True}]},
    "lab": {"groups": [{"hours": [20, 8], "weekend": True, "on_h": 100, "off_h": 1, "speed_spread": 0.2}]},
}
"""Populations by name. docs/measured/planner.md says which of the numbers were measured, and which are assumed."""


def read_population(raw: Any, info: ValidationInfo) -> Any:
    """Return the values of a population. A text is a built-in name, or the path of a YAML file or a trace.

    Other values are returned unchanged.

    Raises:
        ValueError: It is none of these.
        JobError: The YAML file is wrong.
    """
    if not isinstance(raw, str):
        return raw
    if raw in BUILT_IN:
        return BUILT_IN[raw]
    path = kinds.existing_path(raw, info.context)
    if path.suffix in (".yaml", ".yml"):
        return load_section(Population, POPULATION, path)
    if not path.is_file():
        raise kinds.expected(f"{', '.join(BUILT_IN)}, or a file", raw)
    return {"trace": read_trace(path)}


def read_trace(path: Path) -> list[tuple[float, float]]:
    """Read a trace of how many hosts were present, as (seconds, fraction of the highest number) from that time on.

    Known forms: JSON of SkyPilot's spot traces, lines `milliseconds,count` of Parcae's, lines `date, time, count` of
    Bamboo's. Repeated counts are left out.

    Raises:
        ValueError: The file has none of these forms.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} is larger than {_MOST_BYTES >> 20} MiB, the limit for a trace: is it the right file?")
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        counts = _of_json(json.loads(text)) if text.lstrip().startswith("{") else _of_lines(text)
        # Fractions of the highest number, so that a trace of a thousand machines serves for ten.
        first_s, most = counts[0][0], max(count for _, count in counts)
        if not 0 < most < math.inf or not all(sooner <= later for (sooner, _), (later, _) in pairwise(counts)):
            raise ValueError("no host, or moments out of order")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(
            f"{path} is no trace of hosts ({error}): known are SkyPilot's JSON, and lines `milliseconds,count` or "
            "`date, time, count`"
        ) from None
    found: list[tuple[float, float]] = []
    for at_s, count in counts:
        # Several counts of one moment: the last one is valid.
        if found and found[-1][0] == at_s - first_s:
            found.pop()
        if not found or found[-1][1] != count / most:
            found.append((at_s - first_s, count / most))
    # The last entry ends the trace, which repeats from there.
    return [*found, (max(counts[-1][0] - first_s, found[-1][0] + 1.0), found[-1][1])]


def _of_json(raw: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return (seconds, count) from SkyPilot's JSON."""
    gap_s = float(raw["metadata"]["gap_seconds"])
    return [(place * gap_s, float(count)) for place, count in enumerate(raw["data"])]


def _of_lines(text: str) -> list[tuple[float, float]]:
    """Return (seconds, count) from lines of Parcae or Bamboo."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines() if line.strip()]
    return [(_seconds(row[:-1]), float(row[-1])) for row in rows]


def _seconds(fields: Sequence[str]) -> float:
    """Return the seconds of a line's time: one field in milliseconds, or date and time."""
    if len(fields) == 1:
        return float(fields[0]) / 1000.0
    return datetime.fromisoformat(" ".join(fields)).replace(tzinfo=UTC).timestamp()


AsPopulation = Annotated[Population | None, BeforeValidator(read_population), SECTION_AS_YAML]
"""The type of the key `population` in a clients file."""
