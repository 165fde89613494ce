"""Load on a real BOINC server: `python -m benchmarks.boinc_load --project-dir PROJECT`, as the project's user.

    python -m benchmarks.boinc_load --project-dir ~/projects/trial --hosts 1000 --minutes 30
    python -m benchmarks.boinc_load --project-dir ~/projects/trial --hosts 100 --train-s 5 --minutes 2 --json

Simulated hosts ask its scheduler for work, download with MD5, wait for as long as a training, upload with the
certificate, and report. docs/measured/scale.md explains the figures. Rows stay in its database: take a
project that is for nothing else, with VCDL installed, daemons and web server running, and one account.
"""

import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from benchmarks.boinc_load.load import measure
from benchmarks.boinc_load.load_result import Load, lines_of
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.commands.submit import submit
from vcdl.errors import ExitCode
from vcdl.run.folder import RunFolder
from vcdl.run.reading import read_report

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


def bench_boinc(
    project_dir: Path, hosts: int, minutes: float, train_s: float, update_bytes: int, as_json: bool
) -> ExitCode:
    """Submit a job for simulated hosts, measure the server under their load, and stop the job. Raises VcdlError."""
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


def _remove(folder: RunFolder) -> None:
    """Stop the job, and remove it when its work was taken back: else volunteers see it on the page of jobs."""
    folder.stop_request.touch()
    give_up_s = time.monotonic() + _TAKEN_BACK_WITHIN_S
    while read_report(folder).history.paused is None:
        if time.monotonic() > give_up_s:
            click.echo(f"{folder.path} stays: its work was not taken back yet; is vcdl_work_generator down?", err=True)
            return
        time.sleep(0.5)
    # A daemon that has begun a step before the pause may still write a snapshot while the folder is removed.
    while folder.path.exists() and time.monotonic() < give_up_s:
        shutil.rmtree(folder.path, ignore_errors=True)
        time.sleep(0.5)


def _submitted(project: BoincProject, load: Load, update_bytes: int) -> RunFolder:
    """The folder of a new job whose updates have about this size. Raises VcdlError."""
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


@click.command()
@click.option("--project-dir", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--hosts", default=1000, show_default=True, type=click.IntRange(1), help="Simulated hosts.")
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Measured time.")
@click.option("--train-s", default=50.0, show_default=True, type=click.FloatRange(0), help="Mean training of a host.")
@click.option(
    "--update-bytes", default=100_000, show_default=True, type=click.IntRange(1000), help="Size of an upload."
)
@click.option("--json", "as_json", is_flag=True)
def main(project_dir: Path, hosts: int, minutes: float, train_s: float, update_bytes: int, as_json: bool) -> None:
    """Measure a BOINC server under load."""
    bench_boinc(project_dir, hosts, minutes, train_s, update_bytes, as_json)


if __name__ == "__main__":
    main()
