"""`vcdl bench`: the speed of this machine at VCDL's most frequent work, and the load that a BOINC server carries."""

import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import json_option
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.bench.store import StoreBench
    from vcdl.boinc.bench.load_result import Load
    from vcdl.boinc.grid.project_folder import BoincProject
    from vcdl.run.folder import RunFolder

PAPER_PARAMS = 4_972_746
"""Weights of the paper's model."""
ROUNDS = 9
_INPUTS, _CLASSES = 64, 10
_BYTES_PER_UNIT = 8 * (_INPUTS + 1 + _CLASSES)
"""A hidden unit's weights and their moments in an upload, four bytes each."""
_SHARDS_PER_HOST = 10
"""An epoch closes with its last subtask, and only the next may run beside it: with a few shards a host, hosts wait
for one another at each end of an epoch, and not for the server.
"""
_LEAST_RAMP_S = 60.0
"""A host that comes before the first work was made asks again after 30 s."""
_LEAST_SHARDS = 500
"""Fewer would be all out before new ones are made."""
_TAKEN_BACK_WITHIN_S = 60.0
_JOB = """
name: bench
model: {{builtin: {{name: mlp, units: [{units}]}}}}
data: {{npz: {data}, shards: {shards}}}
training: {{batch_size: 1}}
validate: {{every: epoch}}
stop: {{epochs: 100000}}
trust: own
boinc: {{deadline_s: {deadline_s:.0f}}}
"""

_EXAMPLES = """\b
Examples:
  vcdl bench store
  vcdl bench store --params 300000000 --rounds 1
  vcdl bench store --json | jq '.targets[] | select(.is_met | not)'
  vcdl bench boinc --project-dir ~/projects/trial --hosts 100 --train-s 5 --minutes 2

`store` starts a Redis and a MariaDB of its own (redis-server and mariadbd must be installed) and ends them.
`boinc` puts simulated hosts on a real project, as its user. It leaves rows of hosts and results in its database: take
a project that is for nothing else."""


def bench_store(params: int, rounds: int, as_json: bool) -> ExitCode:
    """Measure the weight stores and print a table. Raises StoreError."""
    from vcdl.bench.store import bench_store as measure

    bench = measure(params, rounds, lambda words: click.echo(words, err=True))
    if as_json:
        click.echo(bench.to_json())
    else:
        for line in lines_of(bench):
            click.echo(line)
    return ExitCode.OK


def lines_of(bench: "StoreBench") -> list[str]:
    """The table as lines."""
    from vcdl.bench.store import PAPER_RATIO, WAITING
    from vcdl.report.wording import grouped

    lines = [f"ms per update of {grouped(bench.params)} weights, median of {bench.rounds}", ""]
    lines += [f"{'':<22}{'waiting':>8}{'ms':>10}{'/ naive':>10}{'/ floor':>10}"]
    floor = bench.ms("memory floor", "", WAITING)
    for row in bench.rows:
        naive = bench.ms("naive", row.store)
        ratios = [f"{row.ms_per_update / by:.2f}" if by else "" for by in (naive, floor)]
        lines.append(
            f"{row.store + ' ' + row.case:<22}{row.waiting:>8}{row.ms_per_update:>10.1f}{ratios[0]:>10}{ratios[1]:>10}"
        )
    lines += ["", f"updates/s with {WAITING} waiting", ""]
    lines += [
        f"{name + (' server' if name.endswith('1') else ' servers'):<28}{rate:>12.1f}"
        for name, rate in bench.updates_per_s.items()
    ]
    lines += ["", f"MySQL / Redis, the paper: {PAPER_RATIO}"]
    for case, waiting in (("naive", 1), ("strong", 1), ("strong", WAITING), ("eventual", 1)):
        mysql, redis = bench.ms(case, "mysql", waiting), bench.ms(case, "redis", waiting)
        if mysql and redis:
            lines.append(f"MySQL / Redis, {case}, {waiting} waiting: {mysql / redis:.1f}")
    of_others = "" if bench.params == PAPER_PARAMS else f", set for {grouped(PAPER_PARAMS)} weights"
    lines += ["", f"targets{of_others}", ""]
    for target in bench.targets:
        verdict = "met    " if target.is_met else "MISSED "
        if of_others:
            verdict = ""  # the targets are not for them
        lines.append(f"{verdict}{target.what}: {target.ratio:.2f} (≤ {target.limit:.2f})")
    return lines


def bench_boinc(
    project_dir: Path, hosts: int, minutes: float, train_s: float, update_bytes: int, as_json: bool
) -> ExitCode:
    """Submit a job for simulated hosts, measure the server under their load, and stop the job. Raises VcdlError."""
    from vcdl.boinc.bench.load import measure
    from vcdl.boinc.bench.load_result import Load, lines_of
    from vcdl.boinc.grid.project_folder import BoincProject

    project = BoincProject.at(project_dir)
    load = Load(hosts, minutes * 60, train_s, ramp_s=max(_LEAST_RAMP_S, 2 * train_s))
    folder = _submitted(project, load, update_bytes)
    try:
        result = measure(project, folder, load, lambda words: click.echo(words, err=True))
    finally:
        _remove(folder)
    if as_json:
        click.echo(result.to_json())
    else:
        for line in lines_of(result):
            click.echo(line)
    return ExitCode.OK


def _remove(folder: "RunFolder") -> None:
    """Stop the job, and remove it when its work was taken back: else volunteers see it on the page of jobs."""
    from vcdl.run.finding import read_report

    folder.stop_request.touch()
    give_up_s = time.monotonic() + _TAKEN_BACK_WITHIN_S
    while read_report(folder).paused is None:
        if time.monotonic() > give_up_s:
            click.echo(f"{folder.path} stays: its work was not taken back yet; is vcdl_work_generator down?", err=True)
            return
        time.sleep(0.5)
    shutil.rmtree(folder.path)


def _submitted(project: "BoincProject", load: "Load", update_bytes: int) -> "RunFolder":
    """The folder of a new job whose updates have about this size. Raises VcdlError."""
    import numpy as np

    from vcdl.commands.submit import submit

    shards = max(_LEAST_SHARDS, _SHARDS_PER_HOST * load.hosts)
    generator = np.random.default_rng(1)
    before = set(project.runs_folder.glob("bench*"))
    with TemporaryDirectory(prefix="vcdl-") as name:
        data = Path(name) / "data.npz"
        samples = shards + 100
        np.savez(
            data,
            x_train=generator.standard_normal((samples, _INPUTS), np.float32),
            y_train=np.arange(samples) % _CLASSES,
            x_val=generator.standard_normal((50, _INPUTS), np.float32),
            y_val=np.arange(50) % _CLASSES,
        )
        job_file = Path(name) / "bench.yaml"
        deadline_s = 10 * load.train_s + 600
        units = max(1, round(update_bytes / _BYTES_PER_UNIT))
        job_file.write_text(_JOB.format(units=units, data=data, shards=shards, deadline_s=deadline_s))
        submit(job_file, project.path)
    (new,) = set(project.runs_folder.glob("bench*")) - before
    return project.run_folder(new.name)


@click.command("bench", epilog=_EXAMPLES)
@click.argument("what", type=click.Choice(["store", "boinc"]))
@click.option("--params", default=PAPER_PARAMS, show_default=True, type=click.IntRange(1), help="Weights of the model.")
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1), help="Of which the median counts.")
@click.option("--project-dir", type=click.Path(path_type=Path, file_okay=False), help="The BOINC project, for `boinc`.")
@click.option("--hosts", default=1000, show_default=True, type=click.IntRange(1), help="Simulated hosts.")
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Measured time.")
@click.option("--train-s", default=50.0, show_default=True, type=click.FloatRange(0), help="Mean training of a host.")
@click.option(
    "--update-bytes", default=100_000, show_default=True, type=click.IntRange(1000), help="Size of an upload."
)
@json_option
def command(
    what: str,
    params: int,
    rounds: int,
    project_dir: Path | None,
    hosts: int,
    minutes: float,
    train_s: float,
    update_bytes: int,
    as_json: bool,
) -> ExitCode:
    """Measure the weight stores, or a BOINC server under load."""
    if what == "store":
        return bench_store(params, rounds, as_json)
    if project_dir is None:
        raise click.UsageError("name the BOINC project with --project-dir")
    return bench_boinc(project_dir, hosts, minutes, train_s, update_bytes, as_json)
