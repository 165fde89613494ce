"""`vcdl serve` as a process, and a real Chromium that looks at it."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.vcdl_process import vcdl_in_background

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = which("chromium") or which("google-chrome")
_PATIENCE_MS = 60_000
"""A page on a machine with other work may take longer than Playwright's 5 s."""


class Served:
    """The service over a folder of runs."""

    def __init__(self, runs: Path, *options: str) -> None:
        self._runs = runs
        self._options = options
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, again at the port that it had."""
        self._process: subprocess.Popen[str] = vcdl_in_background(
            "serve", self._runs, "--port", self.port, *self._options
        )
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/login\?code=\S+", line):
                self.login, self.port = found[0], int(found[1])
                return
        raise AssertionError(said)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> str:
        """Kill it as hard as can be; returns what it had to say since its start."""
        self._process.kill()
        if self._process.stdout is None or self._process.stdout.closed:
            return ""
        said, _ = self._process.communicate()
        return said.strip()

    def end(self) -> None:
        """End it in good order."""
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=30)


@contextmanager
def served(runs: Path, *options: str) -> Iterator[Served]:
    service = Served(runs, *options)
    try:
        yield service
    finally:
        service.kill()


@contextmanager
def chromium() -> Iterator["Browser"]:
    if CHROMIUM is None:
        if "CI" in os.environ:
            pytest.fail("there is no Chromium here")
        pytest.skip("there is no Chromium here")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=_PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def looking(browser: "Browser", service: Served, width: int = 1100, dark: bool = False) -> Iterator["Page"]:
    """A page of a browser that is logged in. No script of it fails, and it asks nobody else for anything."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("request", lambda asked: None if asked.url.startswith(service.url) else troubles.append(asked.url))
    page.goto(service.login)
    page.wait_for_url(f"{service.url}/")
    yield page
    assert troubles == []
    context.close()
