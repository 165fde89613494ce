"""The loop over a real BOINC server: its latency, and the share of time spent training.

    python benchmarks/bench_boinc_loop.py PROJECT/vcdl/runs/NAME CLIENT/stdoutdae.txt --slots 2

The figures come from a job's journal and the log of a client that trained it. That log has whole seconds, in
the time zone of its machine (the same as this one's); the client's clock must agree with the server's.
"""

import argparse
import re
import statistics
import time
from pathlib import Path

from vcdl.journal.events import UpdateApplied
from vcdl.run.folder import RunFolder
from vcdl.run.reading import journal_of, read_report

_LINE = re.compile(
    r"^(\d\d-\w{3}-\d{4} \d\d:\d\d:\d\d) \[[^]]*\] (Starting task|Computation for task) (\S+?)_\d+( finished)?$"
)


def read_log(path: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Unix times of the last start and end of each workunit."""
    started: dict[str, float] = {}
    finished: dict[str, float] = {}
    for line in path.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if match is not None:
            when_s = time.mktime(time.strptime(match[1], "%d-%b-%Y %H:%M:%S"))
            (finished if match[4] else started)[match[3]] = when_s
    return started, finished


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--slots", type=int, default=1, help="tasks that the client runs at a time")
    options = parser.parse_args()
    report = read_report(RunFolder(options.run))
    started, finished = read_log(options.log)
    updates = [update for update in _updates(RunFolder(options.run)) if update[1].workunit in finished]
    if not updates:
        parser.error("no update of this run was finished by this client")
    latency_s = sorted(time_s - finished[event.workunit] for time_s, event in updates)
    task_s = [finished[event.workunit] - started[event.workunit] for _, event in updates if event.workunit in started]
    train_s = [event.train_s for _, event in updates if event.train_s is not None]
    span_s = max(finished[event.workunit] for _, event in updates) - min(
        started[event.workunit] for _, event in updates
    )
    print(f"updates                          {len(updates)}")
    print(
        f"end of training to assimilated   median {statistics.median(latency_s):.1f} s, "
        f"90 % below {latency_s[int(0.9 * (len(latency_s) - 1))]:.1f} s, longest {latency_s[-1]:.1f} s"
    )
    print(
        "training in a task               "
        f"median {statistics.median(train_s):.1f} s of {statistics.median(task_s):.1f} s"
    )
    print(f"share of the client's time       {sum(train_s) / (options.slots * span_s):.1%} training")
    print(
        f"                                 {sum(task_s) / (options.slots * span_s):.1%} in tasks, "
        "including the start of Python and Keras"
    )
    print(f"staleness                        mean {report.staleness_mean:.1f}, most {report.totals.staleness_max}")


def _updates(folder: RunFolder) -> list[tuple[float, UpdateApplied]]:
    """The updates of a run and their Unix times."""
    with journal_of(folder) as journal:
        rows = [] if journal is None else list(journal.stream(kinds=(UpdateApplied,)))
    return [(row.time_s, row.event) for row in rows if isinstance(row.event, UpdateApplied)]


if __name__ == "__main__":
    main()
