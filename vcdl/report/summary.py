"""Write summary.json, the outcome of a run for other programs. docs/summary.md describes its schema."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vcdl.files.atomic import whole_file
from vcdl.journal.events import VersionEvaluated
from vcdl.journal.monitor import EpochDetail
from vcdl.report.measures import Report
from vcdl.wire.task import ACCURACY


def summary_of(job: str, report: Report) -> dict[str, Any]:
    """Return the content of a run's summary.json up to now. A figure that is unknown or not finite is None.

    `job` is the job's name.
    """
    best = report.best_epoch
    epochs = report.epochs
    return {
        "job": job,
        # Unknown figures are null and not left out: readers find the same keys in every summary.
        "stop_reason": report.stop.reason if report.stop else None,
        "epochs": len(epochs),
        "updates_applied": report.totals.applied,
        "updates_lost": report.totals.lost,
        "rollbacks": {"count": len(report.history.rollbacks), "updates_dropped": report.rolled_back_updates},
        "workunits": {
            "created": report.totals.created,
            "applied": report.totals.applied,
            "failed": report.totals.failed,
            "refused": report.totals.refused,
            "retried": report.retried,
        },
        "accuracy": {
            "validation": _accuracy(report.final_validation),
            "test": _accuracy(report.final_test),
            "best_validation": _finite_or_none(best.measures.get(ACCURACY)) if best else None,
        },
        "monitor": {"name": report.monitor.name, "mode": report.monitor.mode},
        "metrics": {
            "validation": _measures(report.final_validation),
            "test": _measures(report.final_test),
            "best_validation": _values(best.measures) if best else None,
        },
        "best_epoch": best.epoch if best else None,
        "epochs_detail": [_epoch(detail) for detail in epochs],
        "rate_highest": report.totals.rate_highest or None,
        "rate_trial": report.totals.rate_trial or None,
        "wall_s": round(report.wall_s, 3),
        "samples_trained": report.totals.samples_trained,
        "staleness": {"mean": report.staleness_mean, "max": report.totals.staleness_max},
        "bytes": {"down": report.totals.bytes_down, "up": report.totals.bytes_up},
    }


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write the summary atomically. Raises RunFolderError."""
    with whole_file(path) as temporary:
        temporary.write_text(as_json(summary), encoding="utf-8")


def as_json(value: Any) -> str:
    """Return a value as indented JSON with a line break at the end. Raises ValueError for NaN and infinities."""
    return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _accuracy(evaluated: VersionEvaluated | None) -> float | None:
    return _finite_or_none(evaluated.accuracy) if evaluated else None


def _measures(evaluated: VersionEvaluated | None) -> dict[str, float | None] | None:
    return _values(evaluated.measures) if evaluated else None


def _values(measures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _finite_or_none(value) for name, value in measures.items()}


def _epoch(detail: EpochDetail) -> dict[str, Any]:
    return {
        "epoch": detail.epoch,
        "mean": _finite_or_none(detail.mean),
        "min": _finite_or_none(detail.min),
        "max": _finite_or_none(detail.max),
        "wall_s": detail.wall_s,
        "train_loss": _finite_or_none(detail.train_loss),
        "metrics": _values(detail.measures),
    }


def _finite_or_none(value: float | None) -> float | None:
    """Return the value; None if it is not finite, which JSON cannot express."""
    return value if value is not None and math.isfinite(value) else None
