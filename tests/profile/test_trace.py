"""Traces of runs, as Perfetto reads them."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.service_runs import write_run
from tests.recorded_run import WHOLE_RUN
from tests.run_folders import make_run, unpacked
from vcdl.cli import exit_code_of
from vcdl.profile.trace import write_trace
from vcdl.report.subtask_stream import Fate
from vcdl.run.reading import journal_of

GOLDEN = Path(__file__).parent.parent / "run" / "golden" / "0.1.0.tar.xz"


def test_a_trace_has_each_subtask_on_its_host_with_its_stages_inside(tmp_path: Path) -> None:
    assert write_trace(WHOLE_RUN, tmp_path / "trace.json") == 3
    slices = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    hosts = {one["pid"]: one["args"]["name"] for one in slices if one["name"] == "process_name"}
    told = [(hosts[one["pid"]], one["ts"], one["dur"], one["args"]["fate"]) for one in slices if "fate" in one["args"]]
    assert sorted(told, key=lambda one: one[1:3]) == [
        ("worker-1", 1_000_000, 9_000_000, Fate.TRAINED),
        ("worker-2", 1_000_000, 10_000_000, Fate.LOST),
        ("worker-1", 12_000_000, 8_000_000, Fate.TRAINED),
    ]


def test_the_stages_of_a_real_run_lie_within_their_subtasks(tmp_path: Path) -> None:
    with journal_of(unpacked(GOLDEN, tmp_path)) as journal:
        assert journal is not None
        write_trace(journal.stream(), tmp_path / "trace.json")
    slices = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    subtasks = [one for one in slices if "fate" in one["args"]]
    stages = [one for one in slices if one["ph"] == "X" and one["pid"] and "fate" not in one["args"]]
    assert {one["name"] for one in stages} >= {"train", "first"}
    for stage in stages:
        assert any(
            whole["pid"] == stage["pid"] and whole["tid"] == stage["tid"]
            and whole["ts"] <= stage["ts"] + 1 and stage["ts"] + stage["dur"] <= whole["ts"] + whole["dur"] + 2
            for whole in subtasks
        ), stage  # fmt: skip


def test_subtasks_of_one_thread_never_overlap(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 6, 8, 3)
    assert exit_code_of(["profile", str(folder.path), "--trace", str(tmp_path / "t.json")]) == 0
    by_thread = defaultdict(list)
    for one in json.loads((tmp_path / "t.json").read_text())["traceEvents"]:
        if "fate" in one.get("args", {}):
            by_thread[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    assert len({process for process, _ in by_thread}) == 3
    for spans in by_thread.values():
        ordered = sorted(spans)
        assert all(end <= begin + 1 for (_, end), (begin, _) in pairwise(ordered))


def test_two_runs_are_shown_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two")
    assert exit_code_of(["profile", str(one.path), "--beside", str(two.path)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["stage", "one", "two"]
    assert any(row.split()[0] == "train" for row in rows)
    assert exit_code_of(["profile", "job.yaml", "--trace", "x"]) == 2
