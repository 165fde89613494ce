"""The site that `make docs` builds: every page and contract is in it, and a browser asks no other host for anything."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.places import DOCS, ROOT

pytestmark = pytest.mark.process

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements of which a browser fetches the named file, with the attribute."""
NOT_FETCHED = {"canonical", "prev", "next", "edit"}
"""Relations of a link that only name a page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built elsewhere, from what the build needs: it writes its cache and the site beside its settings."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("mkdocs.yml", "docs", "vcdl"):
        (shutil.copy if name.endswith(".yml") else shutil.copytree)(ROOT / name, folder / name)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run([sys.executable, ROOT / ".ci/llms.py", folder / "docs", folder / "site/llms.txt"], check=True)
    return folder / "site"


class Fetched(HTMLParser):
    """The files that a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        url = given.get(FETCHED.get(tag, ""))
        if url and given.get("rel") not in NOT_FETCHED:
            self.urls.append(url)


def fetched(page: Path) -> list[str]:
    parser = Fetched()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.urls


def test_it_has_every_page(site: Path) -> None:
    wanted = {page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")}
    found = {page.parent.relative_to(site) for page in site.rglob("index.html")}
    assert {path.parent if path.name == "index" else path for path in wanted} == found


def test_language_models_get_a_line_for_every_page(site: Path) -> None:
    """Each line leads to a page that is there, and says what it is about."""
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    rows = [re.fullmatch(r"- \[(.+?)\]\(([^)]+)\)(?:: (.+))?", line) for line in lines if line.startswith("- ")]
    places = [row[2] for row in rows if row]
    assert len(places) == len(rows) == len(list(DOCS.rglob("*.md")))
    pages = {page.parent for page in site.rglob("index.html")}
    assert {site / place for place in places} == pages
    assert not [row[0] for row in rows if row and not row[3]]


def test_a_browser_fetches_nothing_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert any(url.endswith(".js") for url in fetched(site / "index.html"))
    foreign = {url for page in pages for url in fetched(page) if re.match(r"(?:[a-z]+:)?//", url)}
    assert foreign == set()
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8"))


def modules(package: str) -> Iterator[str]:
    yield from (f"vcdl.{package}.{path.stem}" for path in (ROOT / "vcdl" / package).glob("[a-z]*.py"))


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("rules", [*modules("rules"), "vcdl.rules.base.Rule.apply"]),
        ("codecs", [*modules("codecs"), "vcdl.codecs.base.Codec.encode"]),
        ("stores", ["vcdl.stores.base.WeightStore.fold", "vcdl.stores.base.Transaction.commit"]),
        ("grid", ["vcdl.loop.grid.Grid.submit", "vcdl.loop.grid.Results.claim"]),
    ],
)
def test_the_contracts_are_there(site: Path, page: str, names: list[str]) -> None:
    text = (site / "api" / page / "index.html").read_text(encoding="utf-8")
    assert [name for name in names if f'id="{name}"' not in text] == []
