"""Documents lead somewhere, and say what is so of the repository."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import anchors, blocks, links, pages
from tests.places import DOCS, EXAMPLES, ROOT
from vcdl.job import load_job

FIRST_JOB = EXAMPLES / "first_job.yaml"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
        elif page.is_relative_to(DOCS) and not target.is_relative_to(DOCS):
            broken.append(f"{link}: the site has only docs/")
    assert broken == []


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "index.md", DOCS / "job-file.md"], ids=lambda page: page.name
)
def test_the_first_job_is_the_same_everywhere(page: Path) -> None:
    """It is shown whole, and it is the example that the next line runs."""
    (shown, *_) = [block.code for block in blocks(page) if block.language == "yaml"]
    assert shown == FIRST_JOB.read_text(encoding="utf-8")
    assert load_job(FIRST_JOB).name == "first_job"


def test_the_readme_names_what_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert {first or second for first, second in named} <= targets


def test_figures_of_the_readme_are_those_of_the_reports() -> None:
    """Each row of *Measured* repeats figures of the reports that it links."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Measured")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if "docs/experiments/" in row]
    assert len(rows) == 3
    for row in rows:
        reports = re.findall(r"\((docs/experiments/[\w-]+\.md)\)", row)
        text = " ".join((ROOT / report).read_text(encoding="utf-8") for report in reports)
        percent = [float(number) for number in re.findall(r"\d+\.\d\d(?= %)", text)]
        for shown in re.findall(r"(\d+\.\d) %", row):
            assert any(round(number, 1) == float(shown) for number in percent), (shown, reports)


@pytest.mark.parametrize("name", ["mark", "under_fire", "week"])
def test_a_picture_asks_no_other_host_and_is_small(name: str) -> None:
    picture = (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert "url(http" not in picture
    assert "@font-face" not in picture
    assert len(picture) < 400_000


def test_the_caption_of_the_first_picture_says_what_is_in_it() -> None:
    picture = (DOCS / "images" / "under_fire.svg").read_text(encoding="utf-8")
    caption = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split("under_fire.svg)")[1][:500].split())
    shown = re.findall(r">([^<]+)</text>", picture)
    assert "A run under fire: 480 subtasks" in picture
    assert "All 480 updates" in caption
    assert "In 87 seconds" in caption
    assert "1 min 27 s" in shown
    assert "everything twice" in caption
    assert "2 × run interrupted" in shown
    assert "an outdated copy of the weights 3 times" in caption
    assert "3 × store restored" in shown
