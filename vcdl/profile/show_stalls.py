"""Show the stalls of a job in words, as a table, as a picture, and as JSON."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcdl.profile.differential import Measured
from vcdl.profile.stalls import FETCH, INTERCONNECT, MEANINGS, NETWORK, PREPARE, RUNS, SERVER, Stall, greatest
from vcdl.report.plot import new_figure, save
from vcdl.report.wording import align_columns, plural

_CURES = {
    INTERCONNECT: "try a lower `grid > workers` with a higher `grid > threads`",
    PREPARE: "a higher `training > local_epochs` trains more on each reading",
    FETCH: "memory that holds the shards, or a faster disk, ends it",
    SERVER: "`grid > servers: 2` shares its work",
    NETWORK: "`transport` can send less (docs/codecs.md, Uploads that fit the link)",
}
_UNSTEADY = 0.2
"""Relative difference of two rounds above which stalls cannot be seen, because other work on the machine hides them."""
_INCHES = (8.0, 3.4)


def stall_sentence(measured: Measured, found: Sequence[Stall]) -> str:
    """Return a sentence that names the largest stall and its remedy, or says that there is none."""
    stall = greatest(found)
    if stall is None:
        workers = plural(measured.workers, "worker")
        return (
            f"no stall stands out on this machine: the time of its {workers} goes into training, and only more or "
            "faster machines would make the job faster."
        )
    return (
        f"{MEANINGS[stall.name]} {stall.share:.0%} of the time: without this {stall.name} stall the job would run at "
        f"most {stall.gain:.1f} × as fast; {_CURES[stall.name]}."
    )


def stall_lines(measured: Measured, found: Sequence[Stall]) -> list[str]:
    """Return what `vcdl profile` prints about stalls: the sentence, a table of runs, and a table of stalls."""
    cut = f", 1/{measured.cut} of the job's" if measured.cut > 1 else ""
    runs = [["run", f"a subtask of {measured.samples} samples{cut}"]]
    runs += [[name, f"{statistics.median(times_s):.3f} s", RUNS[name]] for name, times_s in measured.times_s.items()]
    rows = [["stall", "", "by round", ""]]
    for stall in found:
        by_round = f"{min(stall.shares):.0%} to {max(stall.shares):.0%}" if len(stall.shares) > 1 else ""
        rows.append([stall.name, f"{stall.share:.0%}", by_round, MEANINGS[stall.name]])
    head, *body = runs
    unmeasured = [f"{FETCH:<12}  not measured: no shard leaves the page cache of the disk that TMPDIR is on"]
    shown = {stall.name for stall in found}
    # Rounds repeat the same work, so what differs between them is the machine's other work.
    spread = max((max(stall.shares) - min(stall.shares) for stall in found), default=0.0)
    unsteady = [f"rounds differ by up to {spread:.0%}: the machine does other work; repeat this when it is quiet"]
    return [
        stall_sentence(measured, found),
        "",
        f"{head[0]:<8}  {head[1]}",
        *align_columns(body),
        "",
        *align_columns(rows),
        *([] if FETCH in shown else unmeasured),
        *(unsteady if spread > _UNSTEADY else []),
    ]


def stalls_json(measured: Measured, found: Sequence[Stall]) -> dict[str, Any]:
    """Return the stalls as the object that `vcdl profile --json` prints."""
    return {
        "sentence": stall_sentence(measured, found),
        "workers": measured.workers,
        "samples": measured.samples,
        "cut": measured.cut,
        "runs_s": {name: [round(one, 5) for one in times_s] for name, times_s in measured.times_s.items()},
        "stalls": {
            stall.name: {
                "share": round(stall.share, 4),
                "seconds": round(stall.seconds, 5),
                "by_round": [round(share, 4) for share in stall.shares],
            }
            for stall in found
        },
    }


def draw_stalls(measured: Measured, found: Sequence[Stall], output: Path, title: str) -> None:
    """Write a picture with a bar for each stall, and a dot for each round.

    Raises:
        RunFolderError: The picture cannot be written.
    """
    figure = new_figure(*_INCHES)
    from matplotlib.ticker import PercentFormatter

    axes = figure.subplots()
    names = [f"{stall.name}: {MEANINGS[stall.name]}" for stall in found]
    axes.barh(names, [stall.share for stall in found], color="tab:blue")
    for place, stall in enumerate(found):
        axes.plot(stall.shares, [place] * len(stall.shares), "o", color="tab:orange", markersize=4)
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("of the time of a subtask; a dot for each round")
    axes.set_title(f"{title}, {plural(measured.workers, 'worker')}")
    save(figure, output)
