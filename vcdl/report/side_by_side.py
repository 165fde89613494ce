"""Compare runs: the settings in which they differ, and their results, as a table or JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vcdl.errors import printable, without_passwords
from vcdl.job.stop import direction
from vcdl.journal.events import FINAL_SPLITS
from vcdl.journal.monitor import MAX, Monitor
from vcdl.report.measures import Report
from vcdl.report.summary import as_json, summary_of
from vcdl.report.wording import duration, group_digits, size

_UNKNOWN = "–"
_GAP = 2
"""Characters between two columns, so that they stay apart."""
_LEAST_COLUMN, _MOST_COLUMN = 14, 40
"""Bounds for the widest column of a run, in characters; between them it depends on the room and the number of runs."""
_LEAST_LABEL = 16
"""Narrowest column of labels, in characters, because shorter ones would not be recognised."""
_TRAIN_LOSS = "train_loss"
ComparisonRow = tuple[str, list[str]]
_Measures = Mapping[str, float | None]


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison."""

    name: str
    """Its name in the comparison, which no other run has."""
    folder: str
    state: str
    kind: str
    job: str
    settings: Mapping[str, Any]
    """The sections of its job file, with all defaults filled in."""
    clients: Mapping[str, Any]
    """The settings of its simulated clients; empty for real ones."""
    report: Report
    epochs_wanted: int
    changed: str = ""
    """Settings that were changed after its start, as text; empty if there are none."""
    highest_rate: float = 0.0
    """The highest learning rate of any workunit, which a trial may have chosen; 0 if unknown."""
    has_wall_clock: bool = True
    """Whether its times are real time, and not the virtual time of a simulation."""


def differing_settings(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """Return the settings that differ between runs: setting → its value in each run, None if the run has none."""
    flat = [_flat(run.settings) for run in runs]
    if all(run.clients for run in runs):  # real clients have no such settings, so that each would be a difference
        flat = [{**values, **_flat({"clients": run.clients})} for values, run in zip(flat, runs, strict=True)]
    keys = dict.fromkeys(key for values in flat for key in values)
    found = {key: [values.get(key) for values in flat] for key in keys}
    # A list is compared as a whole: it is one setting, and the order of its entries matters.
    return {key: values for key, values in found.items() if any(value != values[0] for value in values)}


def comparison_json(runs: Sequence[ComparedRun]) -> str:
    """Return what `vcdl compare --json` prints: the settings that differ, and the summary of each run."""
    rows = [
        {
            "run": run.name,
            "folder": run.folder,
            "state": run.state,
            "kind": run.kind,
            "epochs_wanted": run.epochs_wanted,
            **summary_of(run.job, run.report),
        }
        for run in runs
    ]
    # A store's URL may hold a password, and comparisons are sent around.
    settings = {key: list(map(_without_password, values)) for key, values in differing_settings(runs).items()}
    return as_json({"settings": settings, "runs": rows})


def comparison_rows(runs: Sequence[ComparedRun]) -> list[ComparisonRow]:
    """Return the rows of the comparison, each a label and a text for each run: settings that differ, then results."""
    return [*setting_rows(runs), *result_rows(runs)]


def setting_rows(runs: Sequence[ComparedRun]) -> list[ComparisonRow]:
    """Return the rows of the settings: the kind of run, and the settings that differ."""
    settings = [(key, list(map(_format_value, values))) for key, values in differing_settings(runs).items()]
    return [("kind", [run.kind for run in runs]), *settings]


def comparison_lines(runs: Sequence[ComparedRun], width: int) -> list[str]:
    """Return what `vcdl compare` prints: a line for each setting and figure, with a column for each run.

    If the runs do not fit into `width` characters, several tables follow one another.
    """
    rows = comparison_rows(runs)
    heads = [printable(run.name) for run in runs]
    label_width = min(max(len(label) for label, _ in rows), max(_LEAST_LABEL, width * 2 // 5))
    # Runs share the room equally. If it is too narrow for all, `_tables` splits them into several tables.
    most = min(max((width - label_width) // len(runs) - _GAP, _LEAST_COLUMN), _MOST_COLUMN)
    widths = [
        min(max(len(head), *(len(values[column]) for _, values in rows)), most) for column, head in enumerate(heads)
    ]
    lines: list[str] = []
    for columns in _tables(widths, width - label_width):
        lines += [""] if lines else []
        for label, values in [("", heads), *rows]:
            cells = (_cut(values[column], widths[column]).rjust(widths[column] + _GAP) for column in columns)
            lines.append(f"{_end_of(label, label_width):<{label_width}}{''.join(cells)}".rstrip())
    return lines if differing_settings(runs) else [*lines, "the settings are the same"]


def _tables(widths: Sequence[int], room: int) -> list[list[int]]:
    """Divide the columns among tables, so that each has as many as fit next to the labels, but at least one.

    Args:
        widths: The width of each column, in characters.
        room: Characters of a line next to the labels.

    Returns:
        The numbers of the columns of each table.
    """
    tables: list[list[int]] = [[]]
    left = room
    for column, one in enumerate(widths):
        if tables[-1] and one + _GAP > left:
            tables.append([])
            left = room
        tables[-1].append(column)
        left -= one + _GAP
    return tables


def result_rows(runs: Sequence[ComparedRun]) -> list[ComparisonRow]:
    """Return the rows of the results; measures are indented below the row with their time."""
    reports = [run.report for run in runs]
    bests = [report.best_epoch for report in reports]
    measures: list[_Measures] = [{**best.measures, _TRAIN_LOSS: best.train_loss} if best else {} for best in bests]
    rows = [
        ("state", [run.state for run in runs]),
        ("ended by", [report.stop.reason if report.stop else _UNKNOWN for report in reports]),
        ("epochs", [f"{len(run.report.epochs)}/{run.epochs_wanted}" for run in runs]),
        ("judged by", [report.monitor.name for report in reports]),
        ("at the best epoch", [str(best.epoch) if best else _UNKNOWN for best in bests]),
        *_measure_rows(reports, measures),
    ]
    for split in FINAL_SPLITS:
        finals = _measure_rows(reports, _finals(reports, split))
        rows += [(f"at the end, {split.removeprefix('final_')}", [""] * len(runs)), *finals] if finals else []
    return [*rows, *_totals_rows(runs)]


def _totals_rows(runs: Sequence[ComparedRun]) -> list[ComparisonRow]:
    changed = [run.changed or _UNKNOWN for run in runs]
    totals = [run.report.totals for run in runs]
    means = [run.report.staleness_mean for run in runs]
    rates = [f"{run.highest_rate:.3g}" if run.highest_rate else _UNKNOWN for run in runs]
    return [
        ("running time", [f"{duration(run.report.wall_s)}{'' if run.has_wall_clock else ' virtual'}" for run in runs]),
        *([("changed on the way", changed)] if {*changed} != {_UNKNOWN} else []),
        ("learning rate used, at most", rates),
        ("updates", [group_digits(total.applied) for total in totals]),
        ("failed, refused", [f"{group_digits(total.failed)}, {group_digits(total.refused)}" for total in totals]),
        ("staleness", [_UNKNOWN if mean is None else f"{mean:.1f}" for mean in means]),
        ("downloads", [size(total.bytes_down) for total in totals]),
        ("uploads", [size(total.bytes_up) for total in totals]),
    ]


def _measure_rows(reports: Sequence[Report], measures: Sequence[_Measures]) -> list[ComparisonRow]:
    """Return a row for each metric, monitored ones first; the best of several values is marked with a star."""
    judged = {report.monitor.name for report in reports}
    rows = []
    for name, values in sorted(_by_measure(measures).items(), key=lambda item: item[0] not in judged):
        # A metric without a known direction is taken to be better when higher, as most are.
        monitor = Monitor(name, direction(name) or MAX)
        scores = [monitor.score(value) for value in values if value is not None]
        best = max(scores) if len(set(scores)) > 1 else None
        # By score, as lower is better for some measures; equal values share the star.
        is_best = [value is not None and monitor.score(value) == best for value in values]
        words = [f"{'* ' if star else ''}{_number(value)}" for value, star in zip(values, is_best, strict=True)]
        rows.append((f"  {name}", words))
    return rows


def _finals(reports: Sequence[Report], split: str) -> list[_Measures]:
    """Return the metrics of each run's result on a split, empty if it was not evaluated."""
    finals = [report.final(split) for report in reports]
    return [final.measures if final else {} for final in finals]


def _by_measure(measures: Sequence[_Measures]) -> dict[str, list[float | None]]:
    """Return metric → its value in each run, None if a run lacks it or it is not finite."""
    names = dict.fromkeys(name for one in measures for name in one)
    return {name: [_finite_or_none(one.get(name)) for one in measures] for name in names}


def _flat(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Return settings by their path, such as `training.batch_size`; a list is one value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{at}{key}"
        flat |= _flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return flat


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _format_value(value: Any) -> str:
    return printable(_setting(value)) or _UNKNOWN


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.4g}"


def _without_password(value: Any) -> Any:
    return without_passwords(value) if isinstance(value, str) else value


def _setting(value: Any) -> str:
    """Return a setting as a job file has it, on one line."""
    if value is None:
        return ""
    return str(_without_password(value)) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _end_of(label: str, width: int) -> str:
    """Return a label, cut at its beginning if it is too long, as its end says more: `…learning_rate.schedule`."""
    return label if len(label) <= width else f"…{label[len(label) - width + 1 :]}"
