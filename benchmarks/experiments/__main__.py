"""`python -m benchmarks.experiments`: the paper's experiments and ours; runs, resumes, tabulates and plots."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.cli import main
from vcdl.commands._options import json_option
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from benchmarks.experiments.experiment import Experiment
    from benchmarks.experiments.measured import RunFigures
    from benchmarks.experiments.written import ResultFiles

_EXAMPLES = """\b
Examples:
  python -m benchmarks.experiments --list
  python -m benchmarks.experiments accuracy
  python -m benchmarks.experiments losses job.yaml --seeds 1 --epochs 2
  python -m benchmarks.experiments accuracy --docs docs/experiments

The command may be killed at any moment; the same command continues with the missing runs."""


@dataclass(frozen=True)
class Wanted:
    """The arguments of the command line."""

    name: str
    job_file: Path | None
    """None: the example of Fashion-MNIST."""
    seeds: tuple[int, ...]
    epochs: tuple[int, ...]
    """Empty: the experiment's own."""
    overrides: tuple[str, ...]
    out: Path
    docs: Path | None
    """Folder of the report and its files; None: beside the runs."""
    processes: int
    only: tuple[str, ...] = ()
    """Patterns that the name of a variant must match, each of them; empty: all variants."""

    @property
    def command(self) -> str:
        """The command that makes the same results again, for the report; without passwords."""
        from vcdl.errors import without_passwords

        words = ["python", "-m", "benchmarks.experiments", self.name, *([str(self.job_file)] if self.job_file else [])]
        words += ["--seeds", ",".join(map(str, self.seeds))]
        words += ["--epochs", ",".join(map(str, self.epochs))] if self.epochs else []
        words += [word for pattern in self.only for word in ("--only", pattern)]
        words += [word for setting in self.overrides for word in ("--set", without_passwords(setting))]
        return shlex.join(words)


def experiment(wanted: Wanted, as_json: bool = False) -> ExitCode:
    """Make an experiment's runs and write its results. Raises VcdlError."""
    from benchmarks.experiments import experiment as named
    from benchmarks.experiments.written import ResultFiles
    from vcdl.errors import folder_errors
    from vcdl.run.finding import display_path

    chosen = named(wanted.name)
    files = ResultFiles((wanted.docs or wanted.out).resolve(), wanted.name)
    with folder_errors(files.folder):
        files.folder.mkdir(parents=True, exist_ok=True)
    lines = _trained(wanted, chosen, files)
    if as_json:
        click.echo(files.figures.read_text(encoding="utf-8"), nl=False)
    else:
        for line in (*lines, "", f"report {display_path(files.report)}"):
            click.echo(line)
    return ExitCode.OK


def _trained(wanted: Wanted, chosen: "Experiment", files: "ResultFiles") -> list[str]:
    from benchmarks.experiments.conduct import conduct
    from benchmarks.experiments.measured import measured
    from benchmarks.experiments.planned_run import planned_runs
    from vcdl.files.shipped import shipped_folder

    job_file = wanted.job_file or shipped_folder("examples") / "fashion_mnist.yaml"

    def made(experiment: "Experiment", seeds: Sequence[int]) -> list["RunFigures"]:
        runs = planned_runs(
            experiment=experiment,
            job_file=job_file,
            out=wanted.out,
            seeds=seeds,
            epochs=wanted.epochs,
            overrides=wanted.overrides,
        )
        conduct(runs, wanted.processes, lambda words: click.echo(words, err=True))
        return [measured(run) for run in runs]

    chosen = chosen.only(wanted.only)
    if chosen.is_tuned:
        from benchmarks.experiments.tuned_table import write_tuned_results
        from benchmarks.experiments.tuning import TUNING_SEEDS, trials, tuned

        tried = made(trials(chosen), TUNING_SEEDS)
        chosen = tuned(chosen, tried)
        return write_tuned_results(files, chosen, made(chosen, wanted.seeds), tried, wanted.command)
    results = made(chosen, wanted.seeds)
    if chosen.is_timed:
        from benchmarks.experiments.timed_table import write_timed_results

        return write_timed_results(files, chosen, results, wanted.command)
    return (
        _attack_tables(wanted, chosen, files, results)
        if chosen.has_own_problems
        else _table(wanted, chosen, files, results)
    )


def _attack_tables(
    wanted: Wanted, chosen: "Experiment", files: "ResultFiles", results: Sequence["RunFigures"]
) -> list[str]:
    from benchmarks.experiments.attack_table import rows_of
    from benchmarks.experiments.hostile_results import tables, write_hostile_results

    rows = rows_of(results, chosen.variants)
    write_hostile_results(files, chosen, rows, results, wanted.command)
    return tables(rows)


def _table(wanted: Wanted, chosen: "Experiment", files: "ResultFiles", results: Sequence["RunFigures"]) -> list[str]:
    from benchmarks.experiments.comparison import compare
    from benchmarks.experiments.written import table, write_results

    comparison = compare(results, chosen.control, chosen.shows_bytes)
    write_results(files, chosen, comparison, results, wanted.command)
    return table(comparison)


def _list() -> ExitCode:
    from benchmarks.experiments import NAMES
    from benchmarks.experiments import experiment as named

    for name in NAMES:
        click.echo(f"{name:<14} {named(name).title}")
    return ExitCode.OK


def _numbers(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in (text or "").split(",") if text))
    except ValueError:
        raise click.BadParameter(f"{text}: expected whole numbers such as 1,2,3") from None
    if any(number < 1 for number in numbers):
        raise click.BadParameter(f"{text}: expected numbers from 1 on")
    return numbers


@click.command("experiments", epilog=_EXAMPLES)
@click.argument("name", required=False)
@click.argument("job_file", metavar="[JOB.yaml]", required=False, type=click.Path(path_type=Path))
@click.option("--list", "lists", is_flag=True, help="Show the experiments.")
@click.option(
    "--seeds", callback=_numbers, default="1,2,3", show_default=True, help="Seeds of job and fleet, one run each."
)
@click.option("--epochs", callback=_numbers, metavar="N", help="Lengths of the runs, instead of the experiment's.")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Replace a key of the job in all variants; repeatable.",
)
@click.option(
    "--only",
    metavar="PATTERN",
    multiple=True,
    help="Make the variants whose name matches this regular expression; repeatable, all must match.",
)
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder of the runs [default: experiments/NAME]."
)
@click.option(
    "--docs",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder of the report, its CSV, JSON and PNG [default: --out].",
)
@click.option("--processes", type=click.IntRange(1), help="Runs at a time [default: one per core].")
@json_option
@click.pass_context
def command(
    context: click.Context,
    name: str | None,
    job_file: Path | None,
    lists: bool,
    seeds: tuple[int, ...],
    epochs: tuple[int, ...],
    overrides: tuple[str, ...],
    only: tuple[str, ...],
    out: Path | None,
    docs: Path | None,
    processes: int | None,
    as_json: bool,
) -> ExitCode:
    """Repeat one of the paper's experiments, or of ours."""
    from benchmarks.experiments import experiment as named

    if lists:
        return _list()
    if name is None:
        raise click.UsageError("which one? `python -m benchmarks.experiments --list` shows them", context)
    if not seeds:
        raise click.UsageError("--seeds: at least one is needed", context)
    if job_file is not None and named(name).has_own_problems:
        raise click.UsageError(f"{name} has problems of its own and takes no JOB.yaml; leave it out", context)
    out = out or Path("experiments") / name
    processes = processes or len(os.sched_getaffinity(0))
    return experiment(
        Wanted(
            name=name,
            job_file=job_file,
            seeds=seeds,
            epochs=epochs,
            overrides=overrides,
            out=out,
            docs=docs,
            processes=processes,
            only=only,
        ),
        as_json,
    )


if __name__ == "__main__":
    main(command=command)
