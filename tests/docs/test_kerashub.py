"""The table of backbones in docs/kerashub.md says what the tests show."""

import re

from tests.models.hub_backbones import ARGUMENTS, REFUSED
from tests.places import ROOT


def test_the_table_of_backbones_is_that_of_the_tests() -> None:
    text = (ROOT / "docs" / "kerashub.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (\w+) *\| (yes|no) *\|", text, re.MULTILINE))
    assert table == {name: "no" if name in REFUSED else "yes" for name in ARGUMENTS}
    assert len(table) - len(REFUSED) >= 20
