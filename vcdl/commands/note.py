"""`vcdl note`: a sentence and tags on a run, to find it again among many."""

from pathlib import Path

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import in_project, project_option, run_argument, say
from vcdl.errors import ExitCode

_EXAMPLES = """\b
Examples:
  vcdl note runs/digits                            what is written on it?
  vcdl note runs/digits --text "twice the rate" --tag baseline --tag paper
  vcdl note runs/digits --untag paper"""


@click.command("note", cls=ServedCommand, epilog=_EXAMPLES)
@run_argument
@project_option
@click.option("--text", metavar="TEXT", help="What to write on the run, instead of what stands there.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="A word to find it by; several times for several.")
@click.option("--untag", "untags", metavar="TAG", multiple=True, help="A tag to take away.")
def command(
    path: Path | None, project_dir: Path | None, text: str | None, tags: tuple[str, ...], untags: tuple[str, ...]
) -> ExitCode:
    """Show or change the note and the tags of a run."""
    from vcdl.report.note import RunNote
    from vcdl.run.finding import display_path, find_run

    folder = find_run(in_project(path, project_dir))
    note = RunNote.read(folder.note_file)
    if text is not None or tags or untags:
        note = note.with_changes(text, tags, untags)
        note.keep(folder.note_file)
    return say([f"{display_path(folder.path)}: {note.text or 'no note'}", f"tags: {' '.join(note.tags) or 'none'}"])
