"""The result of a check, and how it is printed."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One result of a check: what was found, and how to repair it."""

    level: Level
    what: str
    cure: str = ""
    """How to repair the fault; empty if there is none."""
    check: str = ""
    """Name of the check; `examine` sets it."""


def ok(what: str) -> Finding:
    return Finding(Level.OK, what)


def warning(what: str, cure: str) -> Finding:
    return Finding(Level.WARNING, what, cure)


def failed(what: str, cure: str) -> Finding:
    return Finding(Level.FAILED, what, cure)


def as_text(finding: Finding) -> str:
    """Return a finding as text: one line, and the cure below it."""
    line = f"{finding.level.value:<8} {finding.check}: {finding.what}"
    return f"{line}\n{'':<8} → {finding.cure}" if finding.cure else line


def to_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON."""
    return json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False) + "\n"
