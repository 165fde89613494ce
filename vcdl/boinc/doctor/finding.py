"""The findings of the doctor's checks."""

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
    """One result of a check."""

    check: str
    level: Level
    what: str
    cure: str = ""
    """The advice; empty when all is well."""


def ok(check: str, what: str) -> Finding:
    return Finding(check, Level.OK, what)


def warning(check: str, what: str, cure: str) -> Finding:
    return Finding(check, Level.WARNING, what, cure)


def failed(check: str, what: str, cure: str) -> Finding:
    return Finding(check, Level.FAILED, what, cure)


def as_text(finding: Finding) -> str:
    """A finding for people: a line, and the cure below it."""
    line = f"{finding.level.value:<8} {finding.check}: {finding.what}"
    return f"{line}\n{'':<8} → {finding.cure}" if finding.cure else line


def to_json(findings: Sequence[Finding]) -> str:
    """Findings for programs."""
    return json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False) + "\n"
