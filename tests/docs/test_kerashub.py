"""The lists of backbones in docs/kerashub.md say what the tests show."""

import re

from tests.models.hub_backbones import ARGUMENTS, REFUSED
from tests.places import ROOT

ANSWERS = ("Work", "Do not work")


def test_the_lists_of_backbones_are_those_of_the_tests() -> None:
    text = (ROOT / "docs" / "kerashub.md").read_text(encoding="utf-8")
    lists = {
        answer: re.findall(rf"^- \*\*{answer}\*\*: (.*?)\.$", text, re.MULTILINE | re.DOTALL) for answer in ANSWERS
    }
    table = {name: answer for answer, (names,) in lists.items() for name in re.findall(r"\w+", names)}
    assert table == {name: "Do not work" if name in REFUSED else "Work" for name in ARGUMENTS}
    assert len(table) - len(REFUSED) >= 20
