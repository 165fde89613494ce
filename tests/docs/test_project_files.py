"""Files about the project for people elsewhere: the citation and the forms of issues."""

import re
import tomllib

import yaml

from tests.places import ROOT
from vcdl import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_said_once() -> None:
    assert PROJECT["version"] == __version__


def test_the_citation_names_this_version_and_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    paper = cited["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Atre", "Jha", "Rao"]
    assert paper["year"] == 2021
    assert paper["identifiers"][0]["value"] == "arXiv:2103.08894"


def test_a_bug_is_reported_with_what_the_command_prints() -> None:
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")}
    assert forms.keys() == {"bug", "idea", "config"}
    asked = {part["id"]: part for part in forms["bug"]["body"] if part["type"] != "markdown"}
    assert "`vcdl report`" in asked["report"]["attributes"]["description"]
    assert asked["report"]["validations"] == {"required": True}
    for form in (forms["bug"], forms["idea"]):
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert all(re.fullmatch(r"[a-z]+", each) for each in ids)
        assert len(set(ids)) == len(ids)
