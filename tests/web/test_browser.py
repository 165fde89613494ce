"""The pages in a real Chromium, over a real `vcdl serve`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from benchmarks.service_runs import write_run
from tests.recorded_run import FIRST_SESSION, SECOND_SESSION, recorded
from tests.run_folders import make_run
from tests.web.served import Served, chromium, looking, served
from vcdl.commands.serve import page_of
from vcdl.errors.backoff import wait_until
from vcdl.journal.events import Recorded
from vcdl.run.folder import RunFolder
from vcdl.run.kind import BOINC
from vcdl.web.static_page import write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.server, pytest.mark.slow]
WHOLE = recorded([*FIRST_SESSION[:-1], *((time_s - 970, event) for time_s, event in SECOND_SESSION[1:])])


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as found:
        yield found


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that others write into."""
    return make_run(tmp_path / "runs" / "demo", WHOLE[:12], finished=False, host=BOINC)


@pytest.fixture
def service(run: RunFolder) -> Iterator[Served]:
    with served(run.path.parent) as found:
        yield found


def go_on(run: RunFolder, events: list[Recorded], finished: bool = False) -> None:
    make_run(run.path, events, finished, host=BOINC)


def test_a_page_follows_its_run_also_through_a_restart_of_the_service(
    run: RunFolder, service: Served, browser: "Browser"
) -> None:
    from playwright.sync_api import expect

    with looking(browser, service) as page:
        page.get_by_role("link", name="demo").click()
        page.get_by_text("What happened").click()
        expect(page.locator("#feed")).to_contain_text("the worker died (signal 9)")
        expect(page.locator("#curves")).to_contain_text("No epoch is finished")
        page.evaluate("window.marked = true")
        go_on(run, WHOLE[12:18])
        expect(page.get_by_role("img", name="accuracy over")).to_be_visible()
        service.kill()
        expect(page.locator("#connection")).to_contain_text("not connected")
        go_on(run, WHOLE[18:], finished=True)
        service.start()
        expect(page.locator("#head")).to_contain_text("finished")
        expect(page.locator("#connection")).to_be_hidden()
        expect(page.locator("#feed")).to_contain_text("not_finite: the weights hold NaN")  # still unfolded
        expect(page.locator("#head")).to_contain_text("accuracy: 0.8000 in epoch 2")
        assert page.evaluate("window.marked"), "the page was loaded again"


def test_a_job_is_stopped_and_resumed_by_keyboard(run: RunFolder, service: Served, browser: "Browser") -> None:
    from playwright.sync_api import expect

    with looking(browser, service) as page:
        page.goto(f"{service.url}/jobs/demo")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="to the content")).to_be_focused()
        page.get_by_role("button", name="Stop").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="asked to stop")).to_be_visible()
        assert run.stop_request.exists()
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("status").filter(has_text="It continues")).to_be_visible()
        assert not run.stop_request.exists()
        page.get_by_role("button", name="log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto(f"{service.url}/jobs/demo")
        expect(page.get_by_label("Token")).to_be_visible()


def test_the_list_takes_up_a_new_job_and_fits_a_narrow_screen(
    run: RunFolder, service: Served, browser: "Browser"
) -> None:
    from playwright.sync_api import expect

    go_on(run, WHOLE[12:18])
    with looking(browser, service, width=360, dark=True) as page:
        expect(page.get_by_role("row", name="demo")).to_be_visible()
        make_run(run.path.with_name("another"))
        expect(page.get_by_role("row", name="another")).to_be_visible()
        for path in ("/", "/jobs/demo", "/jobs/another", "/nothing"):
            page.goto(f"{service.url}{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"


def test_a_page_is_whole_without_any_script(run: RunFolder, service: Served, browser: "Browser") -> None:
    from playwright.sync_api import expect

    go_on(run, WHOLE[12:], finished=True)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(service.login)
    page.get_by_role("link", name="demo").click()
    for heading in ("Course", "Subtasks by host", "Figures", "What happened"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()  # a click waits for no whole page
    page.wait_for_load_state()
    for heading, folded in (("Subtasks by host", "#stream"), ("Figures", "#staleness"), ("Epochs", "#epochs")):
        expect(page.locator(folded)).to_be_hidden()
        page.get_by_role("heading", name=heading).click()
        expect(page.locator(folded)).to_be_visible()
    assert page.locator("#epochs li").count() == 2
    assert "epoch 2/2" not in page.locator("#feed").inner_html(), "the curve and its sentences show it"
    assert page.get_by_role("img").count() >= 4
    assert all(page.get_by_role("img").nth(place).get_attribute("aria-label") for place in range(4))
    second = page.locator("#curves .column").nth(1)
    second.hover(force=True)  # a title is shown under the pointer; its column stands out
    assert second.locator("title").text_content() == "epoch 2: accuracy 0.8000 after 50 s, the best"
    assert second.evaluate("it => getComputedStyle(it).fillOpacity") == "0.12"
    assert page.locator("#curves text.up").all_text_contents()[:2] == ["0.5", "0.6"]
    page.get_by_role("link", name="epoch", exact=True).click()
    expect(page.get_by_role("img", name="accuracy over 2 epochs")).to_be_visible()
    context.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("width", "most_px"), [(1280, 900), (360, 1250)])
def test_a_page_of_a_job_is_one_screen_first_and_a_long_name_hides_nothing(
    tmp_path: Path, browser: "Browser", width: int, most_px: int
) -> None:
    from playwright.sync_api import expect

    name = "a" * 63  # the longest that a job may have
    write_run(tmp_path / name, 20, 20, 4)
    make_run(tmp_path / "other", recorded(FIRST_SESSION), finished=False)
    with served(tmp_path) as service, looking(browser, service, width) as page:
        state = page.get_by_role("row", name="other").locator(".state")
        expect(state).to_be_visible()
        # A list that is drawn anew in between gives 0: the element that was found is no longer part of the page.
        assert wait_until(lambda: 0 < state.evaluate("it => it.getBoundingClientRect().right") <= width, 10), (
            "the state is beyond the edge of the list"
        )
        page.goto(f"{service.url}/jobs/{name}")
        assert page.evaluate("document.body.offsetHeight") <= most_px
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for part in ("#head", "#curves .chart >> nth=0"):
            expect(page.locator(part)).to_be_visible()
            assert page.locator(part).evaluate("it => it.getBoundingClientRect().bottom") <= 800


def test_a_run_with_web_opens_its_page_and_ends_its_service(
    tmp_path: Path, browser: "Browser", monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.sync_api import expect

    run, opened = make_run(tmp_path / "runs" / "demo"), tmp_path / "opened"
    starter = tmp_path / "browser"
    starter.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    starter.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{starter} %s")
    with page_of(run.path):
        assert wait_until(opened.exists, 30)
        page = browser.new_page()
        page.goto(opened.read_text().strip())
        page.wait_for_url("**/jobs/demo")
        expect(page.locator("h1")).to_have_text("demo")
        address = page.url
    with pytest.raises(Exception, match="ERR_CONNECTION_REFUSED"):
        page.goto(address)
    page.close()


def test_a_chosen_job_stays_chosen_while_its_row_changes(run: RunFolder, service: Served, browser: "Browser") -> None:
    from playwright.sync_api import expect

    make_run(run.path.parent / "other")
    with looking(browser, service) as page:
        page.get_by_label("compare demo").check()
        go_on(run, WHOLE[12:18])
        expect(page.locator("#job-demo")).to_contain_text("accuracy 0.")  # its row was drawn again
        make_run(run.path.parent / "third")
        expect(page.locator("#job-third")).to_be_visible()  # all rows were
        page.get_by_label("compare other").check()
        page.get_by_role("button", name="Compare the chosen jobs").click()
        expect(page.get_by_role("heading", name="2 jobs compared")).to_be_visible()
        expect(page.get_by_role("img", name="accuracy of 2 jobs")).to_be_visible()
        assert page.url.endswith("/compare?job=demo&job=other")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("motion", "seen"), [("no-preference", "hidden"), ("reduce", "visible")])
def test_a_movie_moves_unless_its_reader_wants_no_motion(
    run: RunFolder, service: Served, browser: "Browser", motion: Literal["no-preference", "reduce"], seen: str
) -> None:
    go_on(run, WHOLE[12:], finished=True)
    with looking(browser, service) as page:
        page.emulate_media(reduced_motion=motion)
        page.goto(f"{service.url}/jobs/demo")
        page.get_by_role("link", name="movie").click()
        page.wait_for_url("**/movie")
        at = "time_ms => { for (const one of document.getAnimations()) { one.pause(); one.currentTime = time_ms } }"
        last = page.locator("g.f").last
        for time_ms, expected in ((100, seen), (28_000, "visible")):
            page.evaluate(at, time_ms)
            assert last.evaluate("it => getComputedStyle(it).visibility") == expected
        x = page.locator(".cover").first.evaluate("it => it.getBoundingClientRect().x")
        assert x > 870, "at the end everything is uncovered"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_on_any_page(
    run: RunFolder, service: Served, browser: "Browser", tmp_path: Path, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    write_run(run.path.parent / "other", 12, 4, 3)
    write_page(RunFolder(run.path.parent / "other"), tmp_path / "page.html")
    axe = Axe()
    for scheme in ("light", "dark"):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.goto(service.login)
        page.get_by_role("heading", name="Jobs").wait_for()
        for path in (
            "/",
            "/compare?job=demo&job=other",
            "/hosts?job=other",
            "/server",
            "/jobs/other",
            "/jobs/other/movie",
            "/login",
            "",
        ):
            page.goto(f"{service.url}{path}" if path else (tmp_path / "page.html").as_uri())
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            found = axe.run(page).response
            assert found["passes"], "it looked"
            assert not [(path, one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
        page.close()
