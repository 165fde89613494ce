"""`vcdl verify`: recompute a run's weights from its uploads, and check that its model is the measured one."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import PATH, in_project, json_option, project_option, say, say_json
from vcdl.errors import ExitCode, ModelError, RunFolderError
from vcdl.run.folder import RunFolder

if TYPE_CHECKING:
    from vcdl.loop.refold import Proof
    from vcdl.run.results import ExportedScore

_EXAMPLES = """\b
Examples:
  vcdl verify runs/digits
  vcdl verify runs/digits --json | jq .differing

A run that is to be proven from its first update to its last keeps its uploads:
vcdl run job.yaml --set retention.uploads=all. Nothing is trained, and nothing in
the run's folder is changed."""

_MOST_NAMED = 8
"""Most versions that are named in a line, because it should stay one line."""


def verify(path: Path, as_json: bool = False) -> ExitCode:
    """Recompute a run's weights from its kept uploads, compare them with its snapshots, and check its exported model.

    The run need not be finished; only a finished one has a model to check. The results are printed before an error is
    raised.

    Raises:
        RunFolderError: A snapshot is damaged, or differs from the recomputed weights.
        ModelError: The exported model is not the one that was measured.
        VcdlError: The run cannot be read.
    """
    from vcdl.journal.lineage import Lineage
    from vcdl.loop.refold import prove
    from vcdl.run.reading import events_of, is_finished, read_report
    from vcdl.run.results import compare_export
    from vcdl.run.run import Run

    folder = RunFolder.existing(path)
    proof = prove(Run.open(folder), Lineage.of(events_of(folder, *Lineage.KINDS)))
    # Only a finished run has the model that was evaluated last.
    has_left = is_finished(folder) and folder.keras_file.is_file()
    score = compare_export(folder, read_report(folder), on_all=True) if has_left else None
    if as_json:
        exported = None if score is None else {**_finite(asdict(score)), "agrees": score.agrees}
        say_json({"run": folder.path.name, **asdict(proof), "exported": exported})
    else:
        say(_lines(folder, proof, score))
    # Raise the error after the lines, which say what is in order: the user needs that to decide what to do.
    if wrong := sorted({*proof.damaged, *proof.differing}):
        raise RunFolderError(
            f"these snapshots in {folder.snapshots} differ from the run's uploads: {_format_versions(wrong)}; restore "
            "a copy, or train again "
            "(`vcdl resume` rebuilds the newest version of an open run)"
        )
    if score is not None and not score.agrees:
        raise ModelError(f"{folder.keras_file} is not the model that the run has evaluated: {_cause(folder)}")
    return ExitCode.OK


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """Replace NaN and infinities by None, because JSON has neither."""
    return {key: value if math.isfinite(value) else None for key, value in values.items()}


def _lines(folder: RunFolder, proof: "Proof", score: "ExportedScore | None") -> Iterator[str]:
    begin = f", from {_format_versions(proof.begun)} on" if proof.begun else ""
    yield f"updates    {proof.folded} of {proof.updates} folded again from kept uploads{begin}"
    compared = len(proof.equal) + len(proof.differing) + len(proof.damaged)
    if compared:
        yield f"snapshots  {len(proof.equal)} of {compared} equal to them, to the last bit"
    if proof.unproven:
        why = f" ({proof.why})" if proof.why else ""
        yield f"not proven {_format_versions(proof.unproven)}{why}"
    if score is None:
        name = folder.keras_file.name
        yield f"model      {name} has not left the run yet, its last weights are not measured, or it measures itself"
    else:
        yield (
            f"model      loss {score.exported:.6g} by plain Keras, {score.evaluated:.6g} by the run, on "
            f"{score.samples} validation samples"
        )


def _format_versions(versions: Sequence[int]) -> str:
    """Format a list of versions, such as `version 3` or `versions 3, 4 and 12 more`."""
    more = len(versions) - _MOST_NAMED
    names = ", ".join(map(str, versions[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
    return f"version {names}" if len(versions) == 1 else f"versions {names}"


def _cause(folder: RunFolder) -> str:
    if '"class_name": "Normalization"' in folder.read_model_json():
        return (
            "it has a Normalization layer, and runs of VCDL before December 2026 trained and measured such a model on "
            "numbers that were not normalised: train it again"
        )
    return "report this with the job file, and do not use it"


@click.command("verify", epilog=_EXAMPLES)
@click.argument("path", metavar="RUN", type=PATH)
@project_option
@json_option
def command(path: Path, project_dir: Path | None, as_json: bool) -> ExitCode:
    """Say how far a run can be proven from its uploads."""
    return verify(in_project(path, project_dir) or path, as_json)
