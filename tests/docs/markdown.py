"""Markdown files as the tests read them: prose without code, links, headings, blocks of code."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.places import DOCS, ROOT

_FENCE = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]*)\")?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    language: str
    title: str
    code: str


def pages() -> list[Path]:
    """Every document of the repository: those of the site, and those at the root that GitHub shows."""
    return [*sorted(ROOT.glob("*.md")), ROOT / "tests" / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(found["language"], found["title"] or "", found["code"]) for found in _FENCE.finditer(text)]


def links(page: Path) -> list[str]:
    """Their targets as they are written."""
    return _LINK.findall(_CODE_SPAN.sub("``", _prose(page)))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Python-Markdown and GitHub both make them."""
    return {_slug(heading) for heading in _HEADING.findall(_prose(page))}


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _slug(heading: str) -> str:
    words = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return re.sub(r"[\s]+", "-", words.strip())
