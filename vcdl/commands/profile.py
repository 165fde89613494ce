"""`vcdl profile`: where the time of a run goes, stage by stage, or a job's stalls on this machine; what to change."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import (
    PATH,
    in_project,
    json_option,
    picture_option,
    project_option,
    say,
    say_json,
    set_option,
)
from vcdl.errors import ExitCode, RunFolderError
from vcdl.files.extras import require

if TYPE_CHECKING:
    from vcdl.profile.stages import RunProfile
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl profile                         of the run below runs/ that changed last, also while it runs
  vcdl profile runs/digits
  vcdl profile runs/digits --json | jq .all.stages_s
  vcdl profile mnist --project-dir ~/projects/grid
  vcdl profile runs/digits --beside runs/digits-2        seconds by stage, of both
  vcdl profile runs/digits --trace digits.json           each subtask on a time line, for Perfetto
  vcdl profile job.yaml                 of a job on this machine, in about a minute
  vcdl profile job.yaml --project-dir ~/projects/grid     and over the network of its clients"""


def profile_run(
    path: Path | None = None,
    output: Path | None = None,
    as_json: bool = False,
    *,
    beside: Path | None = None,
    trace: Path | None = None,
) -> ExitCode:
    """Print how the time of a run's subtasks divides into stages, and what to change.

    If another run is given, too, print both side by side instead. Without `path` it is the newest running run below
    runs/, otherwise the newest. `output` is a file for a picture, `trace` one for a trace of all subtasks, which a
    browser can show.

    Raises:
        RunFolderError, JobError, JournalError: The run cannot be read, or has no applied upload.
    """
    from vcdl.profile.advice import JobSettings, advise
    from vcdl.profile.show import beside_lines, draw_profile, profile_json, profile_lines
    from vcdl.run.finding import distinct_names, find_run
    from vcdl.run.frozen_job import read_frozen

    folder = find_run(path)
    job, profile = read_frozen(folder), _load_profile(folder)
    advice = advise(profile, JobSettings.of(job))
    if trace is not None:
        _trace(folder, trace)
    if as_json:
        say_json(profile_json(profile, advice))
    elif beside is not None:
        other = find_run(beside)
        say(beside_lines(dict(zip(distinct_names([folder, other]), (profile, _load_profile(other)), strict=True))))
    else:
        say(profile_lines(profile, advice))
    if output is not None:
        draw_profile(profile, output, job.name)
    return ExitCode.OK


def _load_profile(folder: "RunFolder") -> "RunProfile":
    from vcdl.profile.kept_profile import kept_profile
    from vcdl.profile.stages import RunProfile
    from vcdl.run.finding import display_path
    from vcdl.run.reading import journal_of

    with journal_of(folder) as journal:
        # Continue from the state that is stored in the journal, and store it again, so that a long journal is read only
        # once.
        profile = RunProfile() if journal is None else kept_profile(journal).advance(save=True)
    if not profile.by_host:
        raise RunFolderError(
            f"{display_path(folder.path)} has no applied upload yet: `vcdl status` shows how far it is"
        )
    return profile


def _trace(folder: "RunFolder", file: Path) -> None:
    from vcdl.profile.trace import write_trace
    from vcdl.run.reading import journal_of

    with journal_of(folder) as journal:
        subtasks = write_trace(() if journal is None else journal.stream(0), file)
    click.echo(f"{file}: a trace of {subtasks} subtasks; open it at ui.perfetto.dev or chrome://tracing", err=True)


def profile_job(
    job_file: Path,
    overrides: Sequence[str] = (),
    project_dir: Path | None = None,
    output: Path | None = None,
    as_json: bool = False,
) -> ExitCode:
    """Measure the stalls of a job on this machine, which takes about a minute, and print them.

    Args:
        job_file: The job file.
        overrides: Settings KEY=VALUE that replace keys of the job file.
        project_dir: A BOINC project, whose clients then train an epoch so that the network is measured, too; or None.
        output: File for a picture, or None.
        as_json: Print JSON.

    Raises:
        VcdlError: The job cannot run.
    """
    from vcdl.local.warm_workers import one_thread

    one_thread()
    from vcdl.job import SMALL_FLEET, load_job
    from vcdl.journal.observer import RunObserver
    from vcdl.profile.differential import differential_runs
    from vcdl.profile.show_stalls import draw_stalls, stall_lines, stalls_json
    from vcdl.profile.stalls import stalls

    class Phases(RunObserver):
        said = ""

        def phase(self, text: str) -> None:
            # Print a phase only if it differs from the last one, because several short runs have the same phases.
            if text != self.said:
                self.said = text
                click.echo(text, err=True)

    if output is not None:
        require("plot", "matplotlib")  # before minutes of measuring
    job = load_job(job_file, overrides)
    phases = Phases()
    measured = differential_runs(job, phases)
    found = stalls(measured.times_s, measured.cut)
    if project_dir is not None:
        from vcdl.commands.submit import submit_to_project
        from vcdl.profile.over_boinc import network_of

        # Load the job again, because other defaults apply on volunteers' machines, such as the pace.
        there = load_job(job_file, overrides, SMALL_FLEET)
        # One epoch is enough to measure transfers, and volunteers' time should not be wasted.
        once = there.model_copy(update={"stop": there.stop.model_copy(update={"epochs": 1})})
        found.append(network_of(submit_to_project(once, project_dir)[1], phases))
    if as_json:
        say_json(stalls_json(measured, found))
    else:
        say(stall_lines(measured, found))
    if output is not None:
        draw_stalls(measured, found, output, job.name)
    return ExitCode.OK


@click.command("profile", cls=ServedCommand, epilog=_EXAMPLES)
@click.argument("path", metavar="[RUN | JOB.yaml]", required=False, type=PATH)
@project_option
@picture_option
@set_option
@click.option("--beside", metavar="RUN", type=PATH, help="Show the stages of another run beside these.")
@click.option("--trace", metavar="FILE", type=PATH, help="Write a time line of all subtasks, for Perfetto.")
@json_option
def command(
    path: Path | None,
    project_dir: Path | None,
    output: Path | None,
    overrides: tuple[str, ...],
    beside: Path | None,
    trace: Path | None,
    as_json: bool,
) -> ExitCode:
    """Show where the time of a run or a job goes."""
    if path is not None and (path.suffix in (".yaml", ".yml") or path.is_file()):
        if beside is not None or trace is not None:
            raise click.UsageError("--beside and --trace are for runs: name a run's folder, not a job file")
        return profile_job(path, overrides, project_dir, output, as_json)
    return profile_run(in_project(path, project_dir), output, as_json, beside=beside, trace=trace)
