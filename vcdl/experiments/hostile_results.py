"""The results of the experiment `hostile` on disk: a table for each defence, and all figures as CSV, JSON, picture."""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from vcdl.errors import folder_errors
from vcdl.experiments.attack_table import Cell
from vcdl.experiments.experiment import Experiment
from vcdl.experiments.hostile import HONEST
from vcdl.experiments.measured import RunFigures
from vcdl.experiments.written import ResultFiles, write_report
from vcdl.files.atomic import atomic_write
from vcdl.report.wording import size


def write_hostile_results(
    files: ResultFiles, experiment: Experiment, cells: Sequence[Cell], runs: Sequence[RunFigures], command: str
) -> None:
    """Write all four files, each whole or not at all. Raises RunFolderError."""
    with (
        folder_errors(files.folder),
        atomic_write(files.data) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ("problem", "attack", "defence", "seed", "accuracy", "refused_honest", "refused_hostile", "stop_reason")
        )
        rows.writerows(
            (
                *run.run.variant.split(", "),
                run.run.seed,
                "" if run.final is None else f"{run.final:.5g}",
                run.honest.refused,
                run.hostile.refused,
                run.stop_reason,
            )
            for run in runs
        )
    with folder_errors(files.folder), atomic_write(files.figures) as temporary:
        figures = {"command": command, "cells": [asdict(cell) for cell in cells]}
        temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    _draw(files, experiment, cells)
    write_report(files, experiment, tables(cells), "Every run", command)


def tables(cells: Sequence[Cell]) -> list[str]:
    """A table for each defence, as lines of Markdown."""
    lines: list[str] = []
    problems = list(dict.fromkeys(cell.problem for cell in cells))
    for defence in dict.fromkeys(cell.defence for cell in cells):
        of_defence = [cell for cell in cells if cell.defence == defence]
        head = ["", *problems, "honest refused", "hostile refused", "backdoor", "down, a subtask", "up"]
        lines += [f"## {defence}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        for attack in dict.fromkeys(cell.attack for cell in of_defence):
            row = {cell.problem: cell for cell in of_defence if cell.attack == attack}
            points = [_points(row[problem]) if problem in row else "" for problem in problems]
            figures = [
                _share(max((cell.refused_honest or 0.0 for cell in row.values()), default=None)),
                _share(_mean([cell.refused_hostile for cell in row.values()])),
                _share(_mean([cell.backdoor for cell in row.values()])),
                *(_bytes(_mean([getattr(cell, way) for cell in row.values()])) for way in ("bytes_down", "bytes_up")),
            ]
            lines.append(f"| {' | '.join([attack or HONEST, *points, *figures])} |")
        lines.append("")
    seeds = max((cell.seeds for cell in cells), default=0)
    return [
        *lines,
        f"Points against honest clients without a defence, mean of {seeds} seed{'s'[: seeds != 1]}; the accuracy of "
        "honest clients in brackets. Honest uploads refused: of the problem with the most. `!`: runs that ended early, "
        "as a subtask kept failing.",
    ]


def _points(cell: Cell) -> str:
    accuracy = f" ({100 * cell.mean:.1f} %)" if not cell.attack and cell.mean is not None else ""
    return ("–" if cell.points is None else f"{cell.points:+.1f}") + accuracy + " !" * bool(cell.given_up)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _bytes(value: float | None) -> str:
    return "" if value is None else size(value)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _draw(files: ResultFiles, experiment: Experiment, cells: Sequence[Cell]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys(cell.attack or HONEST for cell in cells))
    columns = list(dict.fromkeys((cell.defence, cell.problem) for cell in sorted(cells, key=lambda one: one.defence)))
    points = np.full((len(rows), len(columns)), np.nan)
    for cell in cells:
        if cell.points is not None:
            points[rows.index(cell.attack or HONEST), columns.index((cell.defence, cell.problem))] = cell.points
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(points, cmap="RdYlGn", vmin=-20, vmax=0, aspect="auto")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), [", ".join(column) for column in columns], rotation=60, ha="right")
    axes.set_title(experiment.title)
    figure.colorbar(image, label="points against honest clients without a defence")
    with folder_errors(files.folder), atomic_write(files.picture) as temporary:
        figure.savefig(temporary, dpi=150)
