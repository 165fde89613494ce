"""Define the kinds of YAML files that VCDL reads, and tell them apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FileKind:
    """A kind of YAML file that a command accepts, with what error messages need to know about it."""

    name: str
    """Its noun with the article, for messages: `a job file`."""
    guide: str
    """Path of the document that explains its keys."""
    option: str
    """The command-line option that replaces one of its keys."""
    own_keys: frozenset[str]
    """Top-level keys that no other kind has."""


JOB = FileKind("a job file", "docs/job-file.md", "--set", frozenset({"model", "data", "training", "update"}))
FLEET = FileKind("a fleet file", "docs/fleet.md", "--set", frozenset({"cloud", "capacity", "instances", "places"}))
CLIENTS = FileKind(
    "a file of simulated clients", "docs/simulate.md", "--with", frozenset({"clients", "slots", "subtask_s", "hostile"})
)
HOSTS = FileKind("a file of hosts", "docs/planner.md", "--hosts", frozenset({"hosts"}))
POPULATION = FileKind("a population of hosts", "docs/simulate.md", "--with", frozenset({"groups"}))
_KINDS = (JOB, FLEET, CLIENTS, HOSTS, POPULATION)


def mistaken_for(expected: FileKind, values: Mapping[str, Any]) -> FileKind | None:
    """Return the other kind that a file seems to be, judging by its keys; None if it may be of the expected kind."""
    # One key that only the expected kind has is enough: the other keys may be mistakes, which are reported later.
    if expected.own_keys & values.keys():
        return None
    return next((kind for kind in _KINDS if kind.own_keys & values.keys()), None)
