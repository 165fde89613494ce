"""The results of the experiment `hostile` on disk: a table for each defence, and all figures as CSV, JSON, picture."""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median

import numpy as np

from benchmarks.experiments.attack_table import Points, Row
from benchmarks.experiments.experiment import Attacked, Experiment
from benchmarks.experiments.measured import RunFigures
from benchmarks.experiments.written import ResultFiles, write_report
from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write

_COLUMNS = (
    *("problem", "attack", "hosts", "speed", "defence", "seed", "accuracy", "refused_honest", "refused_hostile"),
    *("honest_out", "found", "recall", "backdoor", "stop_reason"),
)
_HEAD = (
    *("mean", "worst run", "honest refused", "hostile refused", "honest hosts out", "liars found", "after uploads"),
    *("recall", "backdoor", "ended early"),
)
_ABOUT = (
    "Points against honest clients with the default defence, seed by seed, by problem and of all runs; the accuracy of "
    "honest clients in brackets. Honest uploads refused: of the problem with the most. Hosts out: all runs together, "
    "of those that attack with the median number of their uploads until then. Recall of the class that `targeted` is "
    "about, and success of the backdoor: points, mean and worst run. Ended early: runs in which a subtask kept failing."
)


def write_hostile_results(
    files: ResultFiles, experiment: Experiment, rows: Sequence[Row], runs: Sequence[RunFigures], command: str
) -> None:
    """Write all four files, each whole or not at all. Raises RunFolderError."""
    variants = {variant.name: variant for variant in experiment.variants if isinstance(variant, Attacked)}
    with (
        folder_errors(files.folder),
        atomic_write(files.data) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_COLUMNS)
        table.writerows(_figures(variants[run.run.variant], run) for run in runs)
    with folder_errors(files.folder), atomic_write(files.figures) as temporary:
        figures = {"command": command, "rows": [asdict(row) for row in rows]}
        temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    _draw(files, experiment, rows)
    write_report(files, experiment, tables(rows), "Every run", command)


def _figures(variant: Attacked, run: RunFigures) -> tuple[object, ...]:
    """The row of a run in the CSV."""
    return (
        "" if variant.problem is None else variant.problem.name,
        *(variant.attack, variant.hosts, variant.speed, variant.defence, run.run.seed),
        "" if run.final is None else f"{run.final:.5g}",
        *(run.honest.refused, run.hostile.refused, run.honest_out, len(run.found_after)),
        *(("", "") if run.targets is None else (f"{run.targets.recall:.3g}", f"{run.targets.backdoor:.3g}")),
        run.stop_reason,
    )


def tables(rows: Sequence[Row]) -> list[str]:
    """A table for each defence, as lines of Markdown."""
    lines: list[str] = []
    problems = list(dict.fromkeys(problem for row in rows for problem in row.accuracies))
    for defence in dict.fromkeys(row.defence for row in rows):
        head = ["", "hosts", "speed", *problems, *_HEAD]
        lines += [f"## {defence}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        lines += [f"| {' | '.join(_cells(row, problems))} |" for row in rows if row.defence == defence]
        lines.append("")
    return [*lines, _ABOUT]


def _cells(row: Row, problems: Sequence[str]) -> list[str]:
    is_honest = not row.liars
    return [
        *(row.attack, str(row.hosts or ""), f"{row.speed} ×" if row.hosts else ""),
        *(_problem(row, problem, is_honest) for problem in problems),
        *(("–", "–") if row.points is None else (f"{row.points.mean:+.1f}", f"{row.points.worst:+.1f}")),
        _share(max(row.refused_honest.values(), default=None)),
        _share(row.refused_hostile),
        str(row.honest_out),
        "" if is_honest else f"{len(row.found_after)} of {row.liars}",
        f"{median(row.found_after):.0f}" if row.found_after else "",
        *(_both(row.recall), _both(row.backdoor)),
        f"{row.given_up} of {row.runs}",
    ]


def _problem(row: Row, problem: str, is_honest: bool) -> str:
    if problem not in row.accuracies:
        return ""
    accuracy = f" ({100 * row.accuracies[problem]:.1f} %)" if is_honest else ""
    return (f"{row.problems[problem]:+.1f}" if problem in row.problems else "–") + accuracy


def _both(points: Points | None) -> str:
    return "" if points is None else f"{points.mean:+.1f}, {points.worst:+.1f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _draw(files: ResultFiles, experiment: Experiment, rows: Sequence[Row]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(problem for row in rows for problem in row.accuracies))
    points = np.array([[row.problems.get(problem, np.nan) for problem in problems] for row in rows])
    figure = Figure(figsize=(9.0, 2.0 + 0.25 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(points, cmap="RdYlGn", vmin=-10, vmax=0, aspect="auto")
    names = [f"{row.attack}, {f'{row.hosts} at {row.speed} ×, ' if row.hosts else ''}{row.defence}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_xticks(range(len(problems)), problems, rotation=60, ha="right")
    axes.set_title(experiment.title)
    figure.colorbar(image, label="points against honest clients")
    with folder_errors(files.folder), atomic_write(files.picture) as temporary:
        figure.savefig(temporary, dpi=150)
