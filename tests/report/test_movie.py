"""The movie of a run says what its journal says."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

from benchmarks.service_runs import write_run
from tests.job_events import applied, created, evaluated, w
from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, recorded
from vcdl.errors import RunFolderError
from vcdl.journal.events import Event, RunStarted, StoreRestored, UpdateRefused, VersionEvaluated, WorkunitSent
from vcdl.report.movie import FRAMES, LEFT, RIGHT, Label, Movie, Stroke, movie_of
from vcdl.report.movie_files import svg_of, write_movie
from vcdl.report.subtask_stream import Fate
from vcdl.run.reading import read_movie

MOST_BYTES = 1_500_000
SVG = "{http://www.w3.org/2000/svg}"


def sent(at: str, host: str) -> WorkunitSent:
    return WorkunitSent(w(at), host, 100)


def movie(events: Sequence[tuple[float, Event]], has_workers: bool = False) -> Movie:
    return movie_of(recorded([(0, RunStarted(resumed=False)), *events]), "j", has_workers)


def subtasks(found: Movie) -> list[Stroke]:
    """The subtasks with their fates: wide, level, and there from some frame on."""
    strokes = [shape for shape in found.shapes if isinstance(shape, Stroke) and shape.frame and shape.width > 3]
    return [one for one in strokes if one.points[0][1] == one.points[1][1]]


def bars(found: Movie) -> list[tuple[str, int, int]]:
    """Kind, and the frames of begin and end, of each subtask that is drawn."""
    scale = FRAMES / (RIGHT - LEFT)
    return [(one.kind, round((one.points[0][0] - LEFT) * scale), one.frame) for one in subtasks(found)]


def counter(found: Movie, label: str) -> dict[int, str]:
    """Frame → number of a counter."""
    labels = [shape for shape in found.shapes if isinstance(shape, Label)]
    (x,) = [one.x for one in labels if one.words == label and not one.style]
    return {one.frame: one.words for one in labels if one.style == "number" and one.x == x}


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(svg).iter(f"{SVG}text")]


def test_each_subtask_is_there_with_its_fate_when_it_ends() -> None:
    lost = UpdateRefused(w("e1 s1"), "not_finite", "NaN", 100, "b")
    found = movie(
        [
            (0, created("e1 s0")), (0, created("e1 s1")), (0, sent("e1 s0", "a")), (0, sent("e1 s1", "b")),
            (50, applied("e1 s0", 1)), (50, lost), (50, created("e1 s1 a1 v1")), (50, sent("e1 s1 a1 v1", "a")),
            (100, applied("e1 s1 a1 v1", 2)),
        ]
    )  # fmt: skip
    assert found.kinds == {Fate.TRAINED: 1, "again": 1, Fate.REFUSED: 1}
    assert sorted(bars(found)) == [("again", 100, 200), (Fate.REFUSED, 0, 100), (Fate.TRAINED, 0, 100)]
    assert counter(found, "updates applied") == {0: "0", 100: "1", 200: "2"}
    assert counter(found, "given out again") == {0: "0", 100: "1"}
    assert found.title == "j: 2 subtasks on 2 hosts, under way"


def test_the_recorded_run_is_shown_without_its_pause() -> None:
    found = movie_of(WHOLE_RUN, "demo")
    assert found.title == "demo: 2 subtasks on 2 hosts"
    assert found.kinds == {Fate.TRAINED: 1, "again": 1, Fate.LOST: 1}
    assert [*counter(found, "updates applied").values()] == ["0", "1", "2", "3", "4"]
    assert counter(found, "accuracy")[FRAMES] == "0.8000"
    assert counter(found, "running time")[FRAMES] == "52 s", "the pause of 970 s is cut out"
    assert "run interrupted" not in svg_of(found), "a pause is no interruption"


def test_what_the_run_itself_trained_is_lost_with_it_and_what_others_train_is_not() -> None:
    killed: list[tuple[float, Event]] = [
        (0, created()), (0, sent("e1 s0", "a")), (10, created("e1 s1")),
        (500, RunStarted(resumed=True)), (500, sent("e1 s0", "a")), (505, StoreRestored(3, 1)), (510, applied()),
    ]  # fmt: skip
    found = movie(killed, has_workers=True)
    assert found.kinds == {"again": 1, Fate.LOST: 1, "interrupted": 1, "restored": 1}
    assert sorted(bars(found)) == [("again", 100, 200), (Fate.LOST, 0, 100)]
    assert counter(found, "run interrupted") == {0: "0", 100: "1"}
    assert counter(found, "store restored") == {0: "0", 150: "1"}
    uploaded = movie([one for one in killed if not isinstance(one[1], WorkunitSent) or one[0] == 0], has_workers=True)
    assert uploaded.kinds[Fate.TRAINED] == 1, "its upload was there before"
    assert Fate.LOST not in uploaded.kinds
    elsewhere = movie([one for one in killed if one[0] != 500 or isinstance(one[1], RunStarted)])
    assert elsewhere.kinds == {Fate.TRAINED: 1, "interrupted": 1, "restored": 1}


def test_an_upload_that_waits_to_be_applied_leaves_its_place_to_the_next_subtask() -> None:
    found = movie(
        [
            (0, sent("e1 s0", "a")), (5, sent("e1 s1", "a")), (8, replace(applied(), waited_s=3.0)),
            (10, applied("e1 s1", 2)),
        ]
    )  # fmt: skip
    assert bars(found) == [(Fate.TRAINED, 0, 160), (Fate.TRAINED, 100, 200)], "each has its colour when it is applied"
    assert len({shape.points[0][1] for shape in subtasks(found)}) == 1, "both have the whole row"


def test_the_picture_is_valid_asks_nobody_and_is_the_same_each_time(tmp_path: Path) -> None:
    svg = svg_of(movie_of(WHOLE_RUN, "a <b> & c"))
    root = ET.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "style", "path", "text", "g"}
    assert not re.search(r"href|url\(|@import|<script|on\w+=", svg)
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert {"a <b> & c: 2 subtasks on 2 hosts", "worker-1", "accuracy", "1 lost", "being trained"} <= {*words(svg)}
    assert "prefers-reduced-motion" in svg
    assert "prefers-color-scheme" in svg
    for name in ("a.svg", "b.svg", "a.gif", "b.gif"):
        write_movie(movie_of(WHOLE_RUN, "demo"), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()


def test_a_gif_moves_and_comes_to_rest(tmp_path: Path) -> None:
    write_movie(movie_of(WHOLE_RUN, "demo"), tmp_path / "demo.gif")
    with Image.open(tmp_path / "demo.gif") as image:
        times_ms = []
        for frame in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(frame)
            times_ms.append(image.info["duration"])
        assert image.info["loop"] == 0
        assert sum(times_ms) == 29_000
        assert times_ms[-1] >= 5000


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shards", "hosts", "note"),
    [(1000, 1000, "Shown: 60 of 1 000 hosts"), (1000, 8, "Shown: one of 3 of their subtasks")],
)
def test_many_subtasks_and_hosts_are_thinned_and_the_picture_says_so(
    tmp_path: Path, shards: int, hosts: int, note: str
) -> None:
    found = read_movie(write_run(tmp_path / "run", 20, shards, hosts), "run")
    assert sum(found.kinds[kind] for kind in (Fate.TRAINED, "again")) == 20_000
    assert note in words(svg_of(found))
    for suffix in ("svg", "gif"):
        write_movie(found, tmp_path / f"run.{suffix}")
        assert 50_000 < (tmp_path / f"run.{suffix}").stat().st_size < MOST_BYTES


def test_a_run_without_evaluations_has_no_curve() -> None:
    events = [one for one in WHOLE_RUN if not isinstance(one.event, VersionEvaluated)]
    svg = svg_of(movie_of(events, "demo"))
    assert "accuracy" not in words(svg)
    assert "4" in words(svg)


@pytest.mark.parametrize("value", [0.0, 0.5, -3e12])
def test_a_measure_that_never_changes_is_a_level_line(value: float) -> None:
    told = [(10 * number, evaluated(number, number, value)) for number in (1, 2, 3)]
    shapes = movie([(0, sent("e1 s0", "a")), *told]).shapes
    (curve,) = [one for one in shapes if isinstance(one, Stroke) and one.kind == "ink"]
    assert len({y for _, y in curve.points}) == 1


def test_what_hosts_call_themselves_is_text(tmp_path: Path) -> None:
    name = "</text><script>alert(1)</script>\u202e\x1b[31m\ud800"
    found = movie_of(recorded([(0, RunStarted(resumed=False)), (1, sent("e1 s0", name))]), name)
    root = ET.fromstring(svg_of(found))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {"svg", "style", "path", "text", "g"}
    assert not re.search(r"[\u202e\x1b\ud800]", svg_of(found))
    write_movie(found, tmp_path / "a.gif")


def test_a_run_that_is_under_way_shows_what_is_being_trained() -> None:
    found = movie_of(recorded(FIRST_SESSION[:5]), "demo")
    assert found.kinds == {Fate.AT_WORK: 2}
    assert "2 being trained" in words(svg_of(found))


def test_an_empty_journal_is_refused() -> None:
    with pytest.raises(RunFolderError, match="no subtask was given out yet"):
        movie_of(recorded(FIRST_SESSION[:3]), "demo")
