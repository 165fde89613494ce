"""`vcdl new`: a folder with a job that runs, for a data scientist to put model and data of their own into."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from vcdl.commands._options import PATH, given_keys, say, source_options
from vcdl.errors import ExitCode, RunFolderError, VcdlError, folder_errors

TEMPLATES = ("tabular", "images", "text", "timeseries", "finetune")
"""Folders below examples/new/."""
_MAKES_DATA = "make_data.py"
_TUNING_RATE = 5e-5
"""KerasHub's own rate for its classifiers. The usual one, 20 times as large, may undo what a preset has learned."""

_EXAMPLES = """\b
Examples:
  vcdl new                         a table of numbers, in tabular/
  vcdl new images shapes           pictures, in shapes/
  vcdl new --from table.csv mine   a job for a table of your own, in mine/
  vcdl new --from reviews.txt --hub bert_preset
  cd shapes, then vcdl run job.yaml

\b
tabular      columns of numbers, three classes
images       grey pictures, a convolutional net
text         tokens and an Embedding
timeseries   a recurrent net that predicts a number
finetune     a pretrained net with a new head, which alone is trained and travels"""


def new(template: str, folder: Path | None = None) -> ExitCode:
    """Write a template's files into a new folder and create its data, by running the template's program.

    If that fails, nothing is left.

    Args:
        template: One of TEMPLATES.
        folder: The new folder, or None for one with the template's name.

    Raises:
        VcdlError: The folder cannot be used, or the data cannot be made.
    """
    from vcdl.files.shipped import shipped_folder
    from vcdl.run.finding import display_path, quote_path

    folder = (Path(template) if folder is None else folder).resolve()
    with _new_folder(folder):
        for file in sorted((shipped_folder("examples") / "new" / template).glob("*.*")):
            shutil.copyfile(file, folder / file.name)
        click.echo(f"making the data of {display_path(folder)} …", err=True)
        _make_data(folder)
    say((folder / "README.md").read_text(encoding="utf-8").splitlines()[2:])
    click.echo(f"\n{display_path(folder)} is ready: `cd {quote_path(folder)}`, then `vcdl run job.yaml`")
    return ExitCode.OK


def new_from(
    source: str,
    folder: Path | None = None,
    label: str | None = None,
    given: Mapping[str, Any] | None = None,
    hub: Path | None = None,
) -> ExitCode:
    """Write a job for a file or a folder of data into a new folder. If that fails, nothing is left.

    Raises:
        VcdlError: The folder or the data cannot be used.
    """
    from vcdl.data.suggestion import epochs_for, facts_lines, suggestion_for
    from vcdl.files.shipped import shipped_folder
    from vcdl.job import as_yaml
    from vcdl.run.finding import display_path, quote_path

    # A job's name may contain only these characters; it also becomes part of workunits' names.
    name = re.sub(r"[^a-z0-9_-]", "_", Path(source.partition("#")[0]).resolve().stem.lower()).strip("_-")[:50] or "mine"
    folder = (Path(f"{name}_job") if folder is None else folder).resolve()
    if hub is not None:
        from vcdl.data.readers.table_texts import write_lines
        from vcdl.models.hub import check_preset, source_keys, takes_texts

        check_preset(hub := hub.resolve())  # else the data would be described as if there were none
    with _new_folder(folder):
        # A preset for texts has its own tokenizer, so the job reads lines and not a table's columns.
        columns: Sequence[str] = ()
        if hub and takes_texts(hub) and (columns := write_lines(Path(source), label, lines := folder / "texts.txt")):
            source, label = str(lines), None
        suggestion = suggestion_for(source, label, given)
        if hub is not None:
            keys = {**suggestion.data, "from": {**suggestion.data["from"], **source_keys(hub)}}
            suggestion = replace(suggestion, data=keys)
        # Load the data before the job file is written, so that a guess that does not fit the data fails here and not in
        # the first run.
        found = suggestion.load()
        facts = (*columns, *facts_lines(found))
        model = suggestion.outline.model
        builder = shipped_folder("examples") / "from" / f"{model}.py"
        has_builder = hub is None and builder.is_file()
        if has_builder:
            shutil.copyfile(builder, folder / "model.py")
        # Write comments above the keys, so that the user can compare the guesses with what was found.
        held = "".join(f"# {line}\n" for line in (*suggestion.outline.lines, *facts))
        job = {
            "name": name,
            "model": {"hub": str(hub)} if hub else {"python": "model:build"} if has_builder else {"builtin": model},
            "data": {**suggestion.data, **({"shards": _tuning_shards(len(found.train))} if hub else {})},
            **({"training": {"learning_rate": _TUNING_RATE}} if hub else {}),
            "stop": {"epochs": epochs_for(found)},
        }
        says = as_yaml(job, width=100, allow_unicode=True)
        text = f"# Made by `vcdl new --from`: every guess is written out, check each.\n{held}{says}"
        (folder / "job.yaml").write_text(text, encoding="utf-8")
    say((*suggestion.outline.lines, *facts))
    click.echo(
        f"\n{display_path(folder)} is ready: look at its job.yaml, `cd {quote_path(folder)}`, then `vcdl run job.yaml`"
    )
    return ExitCode.OK


def _tuning_shards(samples: int) -> int:
    """Return a number of shards that leaves each subtask enough steps, and gives several clients work.

    1200 lines in 50 shards, of one or two steps each, taught a small BERT nothing (33 % of three classes at a rate of
    0.0005), in 6 shards all (100 %).
    """
    return max(4, min(50, samples // 200))


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Create a folder, or use an empty one, and remove everything in it if the block fails.

    Raises:
        RunFolderError: The folder is not empty, or cannot be written.
    """
    from vcdl.run.finding import display_path

    if folder.suffix in (".yaml", ".yml"):
        raise RunFolderError(
            f"{display_path(folder)} looks like a job file: give the name of the new folder, such as {folder.stem}"
        )
    was_there = folder.is_dir()
    with folder_errors(folder):
        if folder.exists() and (not was_there or any(folder.iterdir())):
            raise RunFolderError(f"{display_path(folder)} already exists and is not empty: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            yield
        # Catch Ctrl-C, too: an incomplete folder would block the next attempt.
        except BaseException:
            _discard(folder, was_there)
            raise


def _make_data(folder: Path) -> None:
    # Run the program in a separate process, as a user would: it imports Keras, and writes into its folder.
    done = subprocess.run([sys.executable, _MAKES_DATA], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:300]
        raise VcdlError(f"{folder / _MAKES_DATA} failed ({last}): is vcdl installed with a backend, as vcdl[cpu]?")


def _discard(folder: Path, was_there: bool) -> None:
    if not was_there:
        shutil.rmtree(folder, ignore_errors=True)
        return
    # Keep the folder, which is the user's. It was empty, so all files in it are ours.
    for file in folder.iterdir():
        file.unlink(missing_ok=True)


@click.command("new", epilog=_EXAMPLES)
@click.argument("template", metavar="[TEMPLATE]", required=False)
@click.argument("folder", metavar="[FOLDER]", required=False, type=PATH)
@click.option("--from", "source", metavar="SOURCE", help="A job for data of your own.")
@click.option("--label", metavar="COLUMN", help="With --from: the column of labels [default: the likeliest].")
@click.option("--hub", metavar="PRESET", type=PATH, help="With --from: fine-tune this preset of KerasHub, a folder.")
@source_options
def command(
    template: str | None,
    folder: Path | None,
    source: str | None,
    label: str | None,
    hub: Path | None,
    as_: str | None,
    size: list[int] | None,
) -> ExitCode:
    """Make a folder with a job that runs, to begin with."""
    given = given_keys(as_, size)
    if source is not None:
        if folder is not None:
            raise click.UsageError("--from replaces the template: give only [FOLDER]")
        return new_from(source, None if template is None else Path(template), label, given, hub)
    if label is not None or hub is not None or given:
        raise click.UsageError("--label, --hub, --as and --size go with --from")
    if template is not None and template not in TEMPLATES:
        raise click.BadParameter(f"{template!r} is not one of {', '.join(TEMPLATES)}.", param_hint="[TEMPLATE]")
    return new(template or TEMPLATES[0], folder)
