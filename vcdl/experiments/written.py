"""An experiment's results on disk: a report to read, the figures as CSV and JSON, a picture."""

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vcdl.experiments.comparison import Comparison, Row
from vcdl.experiments.experiment import Experiment
from vcdl.experiments.measured import Measured
from vcdl.experiments.result_files import ResultFiles
from vcdl.report.measures import EpochDetail
from vcdl.report.plot import Curve, plot_curves
from vcdl.report.summary import as_json
from vcdl.report.wording import plural, size
from vcdl.whole_file import whole_file

_COLUMNS = (
    *("variant", "epochs", "seed", "epoch", "virtual_s"),
    *("validation", "validation_min", "validation_max", "test", "stop_reason"),
)


def write_results(
    files: ResultFiles, experiment: Experiment, comparison: Comparison, runs: Sequence[Measured], command: str
) -> None:
    """Write all four files, each whole or not at all. Raises RunFolderError."""
    with whole_file(files.data) as temporary:
        _write_data(temporary, runs)
    with whole_file(files.figures) as temporary:
        temporary.write_text(as_json({"command": command, **asdict(comparison)}), encoding="utf-8")
    plot_curves(_curves(runs), files.picture, experiment.title, f"{_split(runs)} (mean of the seeds ± spread)")
    write_report(files, experiment, table(comparison), "Every run and epoch", command)


def write_report(files: ResultFiles, experiment: Experiment, body: Sequence[str], data: str, command: str) -> None:
    """The page that shows an experiment; `data` says what the CSV beside it holds. Raises RunFolderError."""
    lines = [
        f"# {experiment.title}",
        "",
        experiment.about,
        "",
        *body,
        "",
        f"![the figures above, drawn]({files.picture.name})",
        "",
        f"{data}: [{files.data.name}]({files.data.name}). Written by:",
        "",
        "```text",
        command,
        "```",
        "",
    ]
    with whole_file(files.report) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")


def table(comparison: Comparison) -> list[str]:
    """Lines of Markdown."""
    what = "loss" if comparison.is_regression else "accuracy"
    head = ["", "epochs", what, "virtual time"]
    has_control = comparison.control is not None
    if has_control:
        head[3:3] = [f"against {comparison.control}"]
        head += [f"reaches {_value(comparison, comparison.goal)} after", "of its time"]
    if comparison.shows_bytes:
        head += ["down, a subtask", "up"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in comparison.rows:
        broken = f" ({row.given_up} of {row.seeds} broke off)" if row.given_up else ""
        cells = [row.variant + broken, str(row.epochs), _mean_words(comparison, row), _minutes(row.wall_s)]
        if has_control:
            cells[3:3] = [_difference(comparison, row)]
            share = "–" if row.reached_share is None else f"{row.reached_share:.2f}"
            cells += [_minutes(row.reached_s), share]
        if comparison.shows_bytes:
            cells += ["–" if sent is None else size(sent) for sent in (row.bytes_down, row.bytes_up)]
        lines.append(f"| {' | '.join(cells)} |")
    seeds = sorted({row.seeds for row in comparison.rows})
    spread = f"Mean ± sample standard deviation over {' or '.join(map(str, seeds))} seeds."
    return [*lines, "", "One seed each." if seeds == [1] else spread]


def _mean_words(comparison: Comparison, row: Row) -> str:
    spread = "" if row.spread is None else f" ± {_value(comparison, row.spread)}"
    return _value(comparison, row.mean) + spread


def _value(comparison: Comparison, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if comparison.is_regression else f"{100 * value:.2f} %"


def _difference(comparison: Comparison, row: Row) -> str:
    if row.difference is None or row.variant == comparison.control:
        return "–"
    return f"{row.difference:+.4g}" if comparison.is_regression else f"{100 * row.difference:+.2f} points"


def _minutes(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds / 60:.0f} min"


def _write_data(path: Path, runs: Sequence[Measured]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(_COLUMNS)
        for run in runs:
            begin = (run.run.variant, run.run.epochs, run.run.seed)
            for point in run.points:
                measured = (point.validation, point.validation_min, point.validation_max, point.test)
                rows.writerow(
                    (
                        *begin,
                        point.epoch,
                        round(point.wall_s, 3),
                        *("" if v is None else f"{v:.5g}" for v in measured),
                        run.stop_reason,
                    )
                )


def _split(runs: Sequence[Measured]) -> str:
    what = "loss" if any(run.is_regression for run in runs) else "accuracy"
    return f"{'test' if all(point.test is not None for run in runs for point in run.points) else 'validation'} {what}"


def _curves(runs: Sequence[Measured]) -> list[Curve]:
    """Of each variant to each length: mean over the seeds of what a run is judged by, and as wide as its spread."""
    groups: dict[tuple[str, int], list[Measured]] = {}
    for run in runs:
        groups.setdefault((run.run.variant, run.run.epochs), []).append(run)
    has_lengths = len({epochs for _, epochs in groups}) > 1
    return [
        Curve(
            f"{variant}, {plural(epochs, 'epoch')}" if has_lengths else variant, _details(group), group[0].is_regression
        )
        for (variant, epochs), group in groups.items()
    ]


def _details(group: Sequence[Measured]) -> tuple[EpochDetail, ...]:
    details = []
    for points in zip(*(run.points for run in group), strict=False):  # as far as all seeds come
        values = [point.value for point in points]
        if all(map(math.isfinite, values)):
            mean, spread = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
            wall_s = statistics.fmean(point.wall_s for point in points)
            details.append(EpochDetail(points[0].epoch, mean, mean - spread, mean + spread, wall_s))
    return tuple(details)
