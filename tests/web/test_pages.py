"""Pages as the server draws them: whole without a script, small, and harmless whatever a job calls itself."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, recorded
from tests.run_folders import DEMO, make_run
from tests.web.asking import asking
from vcdl.errors import VcdlError
from vcdl.job import save_job
from vcdl.journal.events import UpdateRefused, UpdateSuperseded, VersionEvaluated, WorkunitFailed, WorkunitSent
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunLock
from vcdl.run.kind import BOINC, SIMULATED
from vcdl.run.reading import RunFollower, read_report
from vcdl.run.standing import JobRow
from vcdl.web import routes
from vcdl.web.catalogue import PAGE, JobCatalogue
from vcdl.web.job_page import PARTS
from vcdl.web.job_view import JobView
from vcdl.web.live import LivePages, Parts, _Page


def test_the_list_shows_each_job_the_open_ones_first(tmp_path: Path) -> None:
    make_run(tmp_path / "a_finished")
    make_run(tmp_path / "open", recorded(FIRST_SESSION), finished=False)
    make_run(tmp_path / "broken").job_file.write_text("name: [")
    page = asking(tmp_path).get("/").text
    assert re.findall(r'<tr id="job-(\w+)"', page) == ["open", "a_finished", "broken"]
    assert "3 jobs, 1 not finished" in page
    assert "accuracy 0.8000" in page
    assert 'aria-label="accuracy, 2 epochs: from 0.6 to 0.8"' in page
    assert "unreadable" in page


def test_a_jobs_movie_is_for_callers_and_says_so_when_there_is_nothing_to_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "demo")
    make_run(tmp_path / "young", recorded(FIRST_SESSION[:3]), finished=False)
    client, visitor = asking(tmp_path, is_public=True), asking(tmp_path, logged_in=False, is_public=True)
    assert 'href="/jobs/demo/movie"' in client.get("/jobs/demo").text
    answer = client.get("/jobs/demo/movie")
    assert answer.headers["content-type"].startswith("text/html")
    assert '<meta name="viewport"' in answer.text
    assert '<a href="/jobs/demo">demo</a>' in answer.text
    assert "background: var(--paper)" in answer.text
    assert "prefers-color-scheme:dark" in answer.text
    assert answer.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "demo: 2 subtasks on 2 hosts" in answer.text
    refused = client.get("/jobs/young/movie")
    assert refused.status_code >= 400
    assert "no subtask was given out yet" in refused.text
    assert client.get("/jobs/nothing/movie").status_code == 404
    monkeypatch.setattr(routes, "_DRAWING_WAIT_S", 0.01)
    with routes._drawing:
        assert client.get("/jobs/demo/movie").status_code == 503, "one at a time"
    assert client.get("/jobs/demo/movie").status_code == 200
    assert "/movie" not in visitor.get("/jobs/demo").text
    assert visitor.get("/jobs/demo/movie").status_code == 303, "it names hosts"


@pytest.mark.slow
def test_a_list_of_many_jobs_comes_in_pages_below_100_kb(tmp_path: Path) -> None:
    for number in range(PAGE + 3):
        make_run(tmp_path / f"j{number:03d}", WHOLE_RUN if number < 2 else recorded(FIRST_SESSION[:3]), number < 2)
    client = asking(tmp_path)
    first = client.get("/").text
    assert len(first.encode()) < 100_000
    (link,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = client.get(link.replace("&amp;", "&")).text
    shown = [*re.findall(r'<tr id="job-(\w+)"', first), *re.findall(r'<tr id="job-(\w+)"', second)]
    assert len(shown) == len(set(shown)) == PAGE + 3
    assert shown[-2:] == ["j000", "j001"]
    assert re.findall(r'<tr id="job-(\w+)"', client.get("/?state=finished").text) == ["j000", "j001"]


def test_a_jobs_page_tells_what_status_tells_and_more(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    page = asking(tmp_path).get("/jobs/demo").text
    for words in (
        "0.8000 in epoch 2, best 0.8000 in epoch 2",
        "4 done, 1 lost, 1 refused, 2 retried",
        "2 of 6 subtasks failed and are retrained: 1 refused, 1 lost, on 1 host. The last: shard 1",
        'aria-label="1 lost"',
        "attempt 1: refused, not_finite: the weights hold NaN",
        "staleness of the last 4 updates, how many others came in between",
        "2 of 2 epochs done",
        "loss 0.3 (50 samples), epoch 2, the last and the best</dd>",
        "<dt>attempts lost</dt><dd>1, counted by host</dd>",
        '<p class="trains" id="trains">mlp, digits</p>',
        "data.shards</th><td>2</td><td>50",
    ):
        assert words in page
    assert "style=" not in page
    assert not re.findall(r"<script(?! src=\"/static/live.js\" defer></script>)", page)
    assert not re.findall(r"(?:href|src|action)=\"(?:https?:)?//", page)


def test_the_model_to_fetch_says_its_epoch(tmp_path: Path) -> None:
    worse = [
        replace(one, event=replace(one.event, metrics={"accuracy": 0.1}))
        if isinstance(one.event, VersionEvaluated) and one.event.epoch == 2
        else one
        for one in WHOLE_RUN
    ]
    for name, events, words in (
        ("best", WHOLE_RUN, "epoch 2, the last and the best"),
        ("worse", worse, "the last, epoch 2"),
    ):
        make_run(tmp_path / name, events).keras_file.write_bytes(b"")
        assert f"download>the model ({words})</a>" in asking(tmp_path).get(f"/jobs/{name}").text


def test_a_simulation_shows_the_time_since_its_start_and_no_silence(tmp_path: Path) -> None:
    began_s = WHOLE_RUN[0].time_s
    events = [replace(one, time_s=one.time_s - began_s + 6780) for one in recorded(FIRST_SESSION)]
    make_run(tmp_path / "demo", events, finished=False, host=SIMULATED)
    client = asking(tmp_path)
    page = client.get("/jobs/demo").text
    assert "<time>1 h 53 min</time> epoch 1/2" in page
    assert "<time>1 h 53 min</time> shard 1 of epoch 1" in page
    assert "1970" not in page
    hosts = client.get("/hosts?job=demo").text
    (row,) = re.findall(r'<tr><th scope="row">worker-1</th>(.*?)</tr>', hosts)
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', hosts)[1:]
    cells = dict(zip(heads, re.findall(r"<td[^>]*>([^<]*)</td>", row), strict=True))
    assert cells["silent for"] == "–"
    assert [*cells][:4] == ["state", "applied", "lost", "refused"]


def test_the_curve_is_drawn_by_time_or_by_epoch_with_its_best_and_a_band_only_where_there_is_one(
    tmp_path: Path,
) -> None:
    make_run(tmp_path / "band")
    make_run(tmp_path / "line", [one for one in WHOLE_RUN if getattr(one.event, "version", 0) != 1])
    client = asking(tmp_path)
    page = client.get("/jobs/band").text
    assert 'aria-label="accuracy over 50 s of training: from 0.6 to 0.8"' in page
    assert re.findall(r'class="best" d="M([\d. ]+)h0"', page) == ["1000.0 0.0"]
    assert "best: epoch 2" in page
    assert "epoch 2: accuracy 0.8000 after 50 s, the best<" in page
    assert "from the lowest to the highest version" in page
    by_epoch = client.get("/jobs/band?by=epoch").text
    assert 'aria-label="accuracy over 2 epochs: from 0.6 to 0.8"' in by_epoch
    assert re.findall(r'class="across" x="([\d.]+)%"[^>]*>(\d)<', by_epoch)[:3] == [
        ("0.0", "0"),
        ("50.0", "1"),
        ("100.0", "2"),
    ]
    assert '<a href="?by=epoch" aria-current="true">' in by_epoch
    assert client.get("/jobs/band?by=luck").status_code == 422
    without = client.get("/jobs/line").text
    assert "epoch 1: accuracy 0.7000 after" in without
    assert not re.search('class="(key )?band"', without)


def test_the_legend_says_what_superseded_means(tmp_path: Path) -> None:
    name = "demo_e0002_s000_a0_v000002"
    events = [*FIRST_SESSION[:-1], (31.0, WorkunitSent(name, "slow", 1)), (32.0, UpdateSuperseded(name, 1, "slow"))]
    make_run(tmp_path / "demo", recorded(events), finished=False)
    assert "1 superseded (another copy came first)" in asking(tmp_path).get("/jobs/demo").text


def test_the_staleness_of_one_worker_is_no_picture(tmp_path: Path) -> None:
    alone = [one for one in WHOLE_RUN if getattr(one.event, "host", "") != "worker-2"]
    for name, events in (("two", WHOLE_RUN), ("one", alone)):
        make_run(tmp_path / name, events)
    pages = {name: asking(tmp_path).get(f"/jobs/{name}").text for name in ("one", "two")}
    assert {name: "staleness of the last" in page for name, page in pages.items()} == {"one": False, "two": True}


def test_the_host_behind_most_of_a_runs_trouble_is_named(tmp_path: Path) -> None:
    events = [*FIRST_SESSION]
    for shard in range(2, 12):
        workunit = f"demo_e0001_s{shard:03d}_a0_v000000"
        host = "host-9" if shard < 10 else f"host-{shard}"
        events += [
            (30, WorkunitSent(workunit, host, 1)),
            (30, UpdateRefused(workunit, "norm_too_large", "far", 1, host)),
        ]
    folder = make_run(tmp_path / "demo", recorded(events), finished=False)
    page = asking(tmp_path).get("/jobs/demo").text
    assert re.search(
        r"retrained: 10 refused as norm_too_large \(far larger weights.*\), .*, 8 of them on host-9\.",
        page,
    )
    save_job(DEMO.trusting("strangers"), folder.job_file)
    page = asking(tmp_path).get("/jobs/demo").text
    assert re.search(r"8 of them on host-9, which is quarantined now\.", page)


def test_refusals_of_most_hosts_are_said_to_have_a_common_cause(tmp_path: Path) -> None:
    events = [*FIRST_SESSION]
    for number in range(4):
        workunit = f"demo_e0001_s{number:03d}_a1_v000000"
        events += [
            (30, WorkunitSent(workunit, f"host-{number}", 1)),
            (30, UpdateRefused(workunit, "norm_too_large", "far", 1, f"host-{number}")),
        ]
    make_run(tmp_path / "demo", recorded(events), finished=False)
    page = asking(tmp_path).get("/jobs/demo").text
    assert "were refused, so it is rather the job or its data than a host" in page


def test_setbacks_in_a_row_with_one_cause_are_one_line_with_the_number_of_hosts(tmp_path: Path) -> None:
    named = [(number, f"demo_e0002_s{number:03d}_a0_v000002") for number in range(3)]
    sent = [(31.0, WorkunitSent(name, f"host-{number % 2}", 1)) for number, name in named]
    lost = [(32.0 + number, WorkunitFailed(name, "it did not report in time")) for number, name in named]
    make_run(tmp_path / "demo", recorded([*FIRST_SESSION, *sent, *lost]), finished=False)
    words = "shard 2 of epoch 2, attempt 1, on host-0: lost, it did not report in time; and 2 more like it, on 2 hosts"
    page = asking(tmp_path).get("/jobs/demo").text
    assert words in page
    assert page.count("it did not report in time") == 2, "the line and the notice"


def test_a_job_that_nobody_works_on_says_since_when_and_what_to_do_first(tmp_path: Path) -> None:
    make_run(tmp_path / "waiting", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    make_run(tmp_path / "killed", recorded(FIRST_SESSION[:-1]), finished=False)
    for name, action in (("waiting", "start the project&#39;s daemons with <code>bin/start</code>"),
                         ("killed", "its process died. <code>Resume</code> continues")):  # fmt: skip
        page = asking(tmp_path).get(f"/jobs/{name}").text
        assert re.search(rf"No host has worked on it since [-\d :]+, \d+ h \d+ min ago: {action}", page)
        assert "1 of 2 epochs done; time left: unknown while no host works on it" in page
        assert re.search(r"<span>last event at [-\d :]+, \d+ h \d+ min ago</span>", page)
        assert "Not shown while the job has the trouble above." in page


def test_stop_and_resume_are_offered_where_they_do_something(tmp_path: Path) -> None:
    """A simulated run begins anew and is never resumed."""
    killed = make_run(tmp_path / "killed", recorded(FIRST_SESSION[:-1]), finished=False)
    make_run(tmp_path / "over")
    make_run(tmp_path / "simulated", recorded(FIRST_SESSION[:-1]), finished=False, host=SIMULATED)
    offered = {name: _buttons(tmp_path, name) for name in ("killed", "over", "simulated")}
    assert offered == {"killed": {"Resume"}, "over": set(), "simulated": set()}
    with RunLock(killed):
        assert _buttons(tmp_path, "killed") == {"Stop"}


def _buttons(runs: Path, name: str) -> set[str]:
    return set(re.findall(r">(Stop|Resume)</button>", asking(runs).get(f"/jobs/{name}").text))


def test_a_job_that_is_run_but_stands_still_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "demo", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    with RunLock(run):
        page = asking(tmp_path).get("/jobs/demo").text
    assert ">running</span>" in page
    assert re.search(r"Nothing has happened since [-\d :]+, \d+ h \d+ min ago: no host uploads results", page)


def test_the_list_says_on_which_jobs_nobody_works(tmp_path: Path) -> None:
    make_run(tmp_path / "waiting", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    make_run(tmp_path / "over")
    page = asking(tmp_path).get("/").text
    assert re.findall(r'<tr id="job-(\w+)".*?>(nobody works on it|–)</td>', page, re.S) == [
        ("waiting", "nobody works on it"),
        ("over", "–"),
    ]


def test_hosts_of_the_stream_are_in_the_order_of_their_numbers_and_the_idle_strip_has_its_words(tmp_path: Path) -> None:
    sent = [
        (31.0 + number, WorkunitSent(f"demo_e0002_s{number:03d}_a0_v000002", f"host-{number}", 1))
        for number in (2, 10, 9)
    ]
    lost = [(60.0, WorkunitFailed(event.workunit, "gone")) for _, event in sent]
    events = [*FIRST_SESSION[:-1], *sent, *lost]
    make_run(tmp_path / "demo", recorded(events), finished=False, host=BOINC)
    page = asking(tmp_path).get("/jobs/demo").text
    rows = re.findall(r'<th scope="row">([\w-]+)</th><td><svg', page)
    assert rows == ["host-2", "host-9", "host-10", "worker-1", "worker-2"]
    assert '<span class="key idle"></span>nothing happened' in page


HOSTILE = '<img src=x onerror="alert(1)">'


def test_what_hosts_and_settings_call_themselves_is_text(tmp_path: Path) -> None:
    events = [*FIRST_SESSION, (31, WorkunitSent("demo_e0002_s000_a0_v000002", HOSTILE, 1)),
              (32, WorkunitFailed("demo_e0002_s000_a0_v000002", HOSTILE))]  # fmt: skip
    folder = make_run(tmp_path / "demo", recorded(events), finished=False)
    job = DEMO.model_copy(update={"data": DEMO.data.model_copy(update={"class_names": (HOSTILE, "b")})})
    save_job(job, folder.job_file)
    make_run(tmp_path / HOSTILE.replace("/", ""))
    client = asking(tmp_path)
    for page in (client.get("/").text, client.get("/jobs/demo").text):
        assert "<img" not in page
        assert "&lt;img src=x" in page


def test_a_view_that_follows_is_the_one_that_begins_anew(tmp_path: Path) -> None:
    """One fold: whether a row came while it was watched, or before; `vcdl watch` and `vcdl status` have the same."""
    folder = make_run(tmp_path / "demo", WHOLE_RUN[:9], finished=False)
    followed, watched = JobView(folder), RunFollower(folder, RunObserver())
    for end in range(9, len(WHOLE_RUN) + 1):
        make_run(folder.path, WHOLE_RUN[end - 1 : end] if end > 9 else [], finished=False)
        with followed.current() as view:
            watched.poll()
            assert view.last_id == end
            assert view.report == watched.report == read_report(folder)
    with followed.current(), JobView(folder).current() as anew:
        assert (anew.report, anew.hosts, anew.last_id) == (followed.report, followed.hosts, followed.last_id)
        assert list(anew.feed) == list(followed.feed)
        assert anew.stream == followed.stream


def test_a_row_is_kept_only_while_nothing_changes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "demo")
    catalogue = JobCatalogue(tmp_path)
    assert catalogue.row("demo") is catalogue.row("demo")
    folder.summary_file.unlink()
    row = catalogue.row("demo")
    assert isinstance(row, JobRow)
    assert row.state == "killed"


def test_a_page_that_is_watched_is_drawn_once_for_all_but_for_visitors_and_trouble(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    client = asking(tmp_path, is_public=True)
    live = client.app.state.service.live  # type: ignore[attr-defined]
    live._pages["/jobs/demo?"] = _Page(dict, dict.fromkeys(PARTS, "drawn for those who watch"))
    assert "drawn for those who watch" in client.get("/jobs/demo").text
    assert "drawn for those who watch" not in client.get("/jobs/demo?notice=stop").text
    assert "drawn for those who watch" not in client.get("/jobs/demo", headers={"cookie": "vcdl_session="}).text
    live._pages["/jobs/demo?"].parts = {"live-error": "the disk is away"}
    assert "2 of 2 epochs done" in client.get("/jobs/demo").text


def test_a_page_that_could_not_be_kept_up_says_so_only_until_it_is_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Parts | VcdlError] = [{"head": "1"}, VcdlError("the disk is away"), {"head": "2"}]

    def render() -> Parts:
        found = looks.pop(0) if looks else {"head": "2"}
        if isinstance(found, VcdlError):
            raise found
        return found

    async def messages() -> list[dict[str, str]]:
        found = []
        async for message in LivePages().follow("/", render):
            found.append(json.loads(message.partition(b"data: ")[2]))
            if len(found) == 3:
                break
        return found

    monkeypatch.setattr("vcdl.web.live.EVERY_S", 0.05)
    first, broken, mended = asyncio.run(messages())
    assert (first["head"], first["live-error"]) == ("1", "")
    assert broken == {"live-error": "the disk is away"}
    assert mended == {"head": "2", "live-error": ""}


def test_settings_are_read_again_when_they_change_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "demo", WHOLE_RUN[:9], finished=False)
    client = asking(tmp_path)
    assert "stop.epochs</th><td>2<" in client.get("/jobs/demo").text
    save_job(DEMO.model_copy(update={"stop": DEMO.stop.model_copy(update={"epochs": 7})}), folder.job_file)
    assert "stop.epochs</th><td>7<" in client.get("/jobs/demo").text
    make_run(tmp_path / "other", WHOLE_RUN[9:10], finished=False).journal_file.replace(folder.journal_file)
    monkeypatch.setattr("vcdl.web.job_view.read_frozen", None)
    assert "stop.epochs</th><td>7<" in client.get("/jobs/demo").text
