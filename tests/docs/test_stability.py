"""docs/stability.md lists what is promised: all that is public is in it, and formats have the numbers that it says."""

import re
import tomllib

from tests.places import DOCS, ROOT
from tests.run.test_golden import GOLDEN
from vcdl import __all__ as public
from vcdl import __version__
from vcdl.journal.database import _FORMAT as JOURNAL
from vcdl.run.prepared import _FORMAT as PREPARED
from vcdl.wire.fields import FORMAT as WORKUNIT
from vcdl.wire.params import _FORMAT as PARAMS

PAGE = (DOCS / "stability.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def row(begin: str) -> str:
    """The row of the list that begins so."""
    (found,) = re.findall(rf"^\| {begin}.*$", PAGE, re.MULTILINE)
    return str(found)


def test_every_public_name_and_every_entry_point_is_promised() -> None:
    assert set(re.findall(r"`vcdl\.(\w+)`", row("Python"))) == set(public)
    assert set(re.findall(r"`(vcdl\.\w+)`", row("Entry points"))) == {*PROJECT["entry-points"], "vcdl.testing"}


def test_formats_have_the_numbers_that_are_said() -> None:
    said = [int(number) for number in re.findall(r"^\| [^|]+ \| (\d+) \|$", PAGE, re.MULTILINE)]
    assert said == [WORKUNIT, PARAMS, PREPARED, JOURNAL]


def test_the_files_that_hold_it_are_there() -> None:
    places = re.findall(r"^\| `(tests/[^`]+)` \|", PAGE, re.MULTILINE)
    assert len(places) == 3
    for place in places:
        assert (ROOT / place.replace("VERSION", __version__)).exists(), place
    assert GOLDEN
