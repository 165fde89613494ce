"""`vcdl profile`: where the time of a run goes, stage by stage, and what to change."""

from pathlib import Path

import click

from vcdl.commands._options import in_project, json_option, project_option
from vcdl.errors import ExitCode, RunFolderError

_EXAMPLES = """\b
Examples:
  vcdl profile                         of the run below runs/ that changed last, also while it runs
  vcdl profile runs/digits
  vcdl profile runs/digits --json | jq .all.stages_s
  vcdl profile mnist --project-dir ~/projects/grid"""


def profile_run(path: Path | None = None, output: Path | None = None, as_json: bool = False) -> ExitCode:
    """Print where the time of a run's subtasks goes. Raises RunFolderError, JobError, JournalError."""
    from vcdl.profile.advice import JobSettings, advise
    from vcdl.profile.show import draw_profile, profile_json, profile_lines
    from vcdl.profile.stages import RunProfile
    from vcdl.report.summary import as_json as json_text
    from vcdl.run.finding import chosen_run, shown
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import journal_of

    folder = chosen_run(path)
    job = read_frozen(folder)
    with journal_of(folder) as journal:
        profile = RunProfile.of(() if journal is None else journal.stream())
    if not profile.sums:
        raise RunFolderError(
            f"{shown(folder.path)} has no upload that was folded in yet: `vcdl status` shows how far it is"
        )
    servers = job.grid.servers if isinstance(job.grid.servers, int) else 1
    advice = advise(profile, JobSettings(job.data.shards, max(1, servers)))
    if as_json:
        click.echo(json_text(profile_json(profile, advice)), nl=False)
    else:
        for line in profile_lines(profile, advice):
            click.echo(line)
    if output is not None:
        draw_profile(profile, output, job.name)
    return ExitCode.OK


@click.command("profile", epilog=_EXAMPLES)
@click.argument("path", metavar="[RUN]", required=False, type=click.Path(path_type=Path))
@project_option
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Also draw a picture: PNG, SVG or PDF."
)
@json_option
def command(path: Path | None, project_dir: Path | None, output: Path | None, as_json: bool) -> ExitCode:
    """Show where the time of a run goes, and what to change."""
    return profile_run(in_project(path, project_dir), output, as_json)
