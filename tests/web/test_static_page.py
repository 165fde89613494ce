"""A run's page as one file."""

import re
from pathlib import Path

import pytest

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from tests.web.served import chromium
from vcdl.cli import exit_code_of


def test_a_page_has_curves_and_settings_no_hosts_and_no_address(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    assert exit_code_of(["export", str(tmp_path / "demo"), "--page", str(tmp_path / "out.html")]) == 0
    page = (tmp_path / "out.html").read_text()
    for words in ("2 of 2 epochs done", 'aria-label="accuracy over 2 epochs', "data.shards", "1 lost", ".line {"):
        assert words in page
    assert "worker-1" not in page
    assert not re.findall(r"<script|<link|<button|<form|(?:href|src|action)=|https?:|@import|url\(", page)


def test_an_unfinished_run_has_a_page_too_and_a_missing_one_none(tmp_path: Path) -> None:
    make_run(tmp_path / "demo", recorded(FIRST_SESSION[:3]), finished=False)
    assert exit_code_of(["export", str(tmp_path / "demo"), "--page", str(tmp_path / "out.html")]) == 0
    assert "No epoch is finished" in (tmp_path / "out.html").read_text()
    assert exit_code_of(["export", str(tmp_path / "none"), "--page", str(tmp_path / "none.html")]) == 6
    assert not (tmp_path / "none.html").exists()
    assert exit_code_of(["export", str(tmp_path / "demo"), "--page", "x.html", "--trackio"]) == 2


@pytest.mark.server
@pytest.mark.slow
def test_a_browser_asks_for_nothing_when_it_opens_the_file(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    assert exit_code_of(["export", str(tmp_path / "demo"), "--page", str(tmp_path / "out.html")]) == 0
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 360, "height": 800})
        asked: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.goto((tmp_path / "out.html").as_uri())
        assert page.get_by_role("img", name="accuracy over 2 epochs").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert asked == [(tmp_path / "out.html").as_uri()]
        assert not said
