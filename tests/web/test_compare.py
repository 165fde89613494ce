"""Jobs beside each other in a browser, and finding them: search, order, columns, notes."""

import re
from pathlib import Path

import pytest

from benchmarks.service_runs import write_run
from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import DEMO, make_run
from tests.web.asking import asking
from vcdl.cli import exit_code_of
from vcdl.errors import JobError
from vcdl.job import save_job
from vcdl.report.note import RunNote
from vcdl.run.folder import RunFolder
from vcdl.run.standing import JobRow
from vcdl.web.catalogue import JobCatalogue


def with_rate(folder: RunFolder, rate: float) -> RunFolder:
    training = DEMO.training.model_copy(update={"learning_rate": rate})
    save_job(DEMO.model_copy(update={"training": training}), folder.job_file)
    return folder


def names(page: str) -> list[str]:
    return re.findall(r'<tr id="job-(\w+)"', page)


def test_two_jobs_are_compared_by_curves_and_by_what_differs(tmp_path: Path) -> None:
    with_rate(make_run(tmp_path / "one"), 0.01)
    with_rate(make_run(tmp_path / "two"), 0.02)
    client = asking(tmp_path)
    page = client.get("/compare?job=two&job=one&by=epoch").text
    assert page.index("two") < page.index("one")  # as they were chosen
    assert "training.learning_rate</th><td>0.02</td><td>0.01</td>" in page
    assert page.count('class="line run0"') == page.count('class="line run1"') == 2  # accuracy and loss
    assert "<title>two, epoch 1: accuracy 0.6; one, epoch 1: accuracy 0.6</title>" in page
    assert 'aria-label="accuracy of 2 jobs over 2 epochs"' in page
    assert 'href="?job=two&amp;job=one&amp;by=time"' in page
    assert "style=" not in page
    results, settings = page.index("<h2>Results</h2>"), page.index("<h2>Settings that differ</h2>")
    assert results < page.index("learning rate used, at most</th><td>0.02</td><td>0.01</td>") < settings
    assert '<th scope="row" class="group">at the best epoch</th><td>2</td>' in page
    assert '<th scope="row" class="group">at the end, test</th>' in page
    assert "staleness</th><td>0.5</td>" in page
    alone = client.get("/compare?job=one")
    assert (alone.status_code, "choose at least two jobs" in alone.text) == (422, True)
    assert client.get("/compare?job=one&job=..%2Fone").status_code == 404


def test_a_visitor_of_a_public_service_compares_nothing(tmp_path: Path) -> None:
    RunNote("mine", ("secret",)).keep(with_rate(make_run(tmp_path / "one"), 0.01).note_file)
    with_rate(make_run(tmp_path / "two"), 0.02)
    client = asking(tmp_path, logged_in=False, is_public=True)
    assert client.get("/compare?job=one&job=two").status_code == 303
    page = client.get("/?search=secret").text
    assert names(page) == ["one", "two"]  # what is searched in is not for them
    for hidden in ("mine", "secret", "learning_rate", "checkbox", 'id="compare"'):
        assert hidden not in page


def test_the_list_has_columns_for_settings_that_differ(tmp_path: Path) -> None:
    with_rate(make_run(tmp_path / "one"), 0.01)
    with_rate(make_run(tmp_path / "two"), 0.02)
    page = asking(tmp_path).get("/").text
    assert re.findall(r'<th scope="col">([a-z_.]+\.[a-z_]+)</th>', page) == ["training.learning_rate"]
    assert "<td>0.01</td>" in page
    assert "<td>0.02</td>" in page


def test_jobs_are_found_by_words_of_name_note_and_tags(tmp_path: Path) -> None:
    make_run(tmp_path / "mnist_small")
    RunNote("twice the Rate", ("paper",)).keep(make_run(tmp_path / "other").note_file)
    client = asking(tmp_path)
    found = {words: names(client.get("/", params={"search": words}).text) for words in (
        "mnist", "rate twice", "paper other", "paper mnist", "%",
    )}  # fmt: skip
    assert found == {
        "mnist": ["mnist_small"], "rate twice": ["other"], "paper other": ["other"], "paper mnist": [], "%": [],
    }  # fmt: skip
    page = client.get("/").text
    assert '<a class="tag" href="/?search=paper">paper</a> <small>twice the Rate</small>' in page
    assert "No job has these words" in client.get("/?search=none").text


def test_jobs_are_ordered_by_their_measure_page_by_page(tmp_path: Path) -> None:
    for epochs in (1, 9, 4):
        write_run(tmp_path / f"of_{epochs}", epochs, 4, 2)
    make_run(tmp_path / "nothing_yet", recorded(FIRST_SESSION[:3]), finished=False)
    catalogue = JobCatalogue(tmp_path)
    scores = {row.job: row.score for row in catalogue.page().rows if isinstance(row, JobRow) and row.score is not None}
    best = sorted(scores, key=lambda name: -scores[name])
    assert len(best) == 3
    first = catalogue.page(limit=2, sort="measure")
    rest = catalogue.page(first.after or "", limit=2, sort="measure")
    assert [row.job for row in (*first.rows, *rest.rows)] == [*best, "nothing_yet"]
    assert rest.after is None
    assert next(row.job for row in catalogue.page(sort="newest").rows) == "nothing_yet"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"text": 1}', '{"text": "a", "tags": 7}', "\x00"])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    folder = make_run(tmp_path / "one")
    folder.note_file.write_text(content)
    assert RunNote.read(folder.note_file) == RunNote()
    assert names(asking(tmp_path).get("/").text) == ["one"]


def test_a_note_is_kept_shown_and_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    assert exit_code_of(["note", "one", "--text", "a <b>", "--tag", "x", "--tag", "y"]) == 0
    assert exit_code_of(["note", "one", "--untag", "x"]) == 0
    assert exit_code_of(["note", "one"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["one: a <b>", "tags: y"]
    assert RunNote.read(folder.note_file) == RunNote("a <b>", ("y",))
    for path in ("/", "/jobs/one"):
        assert "a &lt;b&gt;" in asking(tmp_path).get(path).text
    with pytest.raises(JobError, match="is no tag"):
        RunNote().with_changes(None, ["two words"], [])
    with pytest.raises(JobError, match="at most 20 tags"):
        RunNote().with_changes(None, [str(number) for number in range(21)], [])
