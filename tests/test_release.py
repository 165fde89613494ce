"""What a release is made of: workflows call what is here, and documents of versions lie next to each other."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.places import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_our_own_scripts_and_pins_what_it_takes_from_others(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}, "each job names what it needs"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", f"a@{'0' * 40}"))
            for target in re.findall(r"make ([a-z-]+)", step.get("run", "")):
                assert target in targets
            for script in re.findall(r"\.ci/\w+", step.get("run", "")):
                assert (ROOT / script).is_file()


@pytest.mark.process
def test_documents_of_versions_lie_next_to_each_other(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()

    def publish(version: str, words: str) -> str:
        (site / "index.html").write_text(words)
        code = "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
        code += "from publish_docs import publish; print(publish(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))"
        given = map(str, (ROOT / ".ci", site, tmp_path / "to", version))
        done = subprocess.run([sys.executable, "-c", code, *given], check=True, capture_output=True, text=True)
        return str(done.stdout)

    publish("1.9.0", "nine")
    publish("1.10.0", "ten")
    assert publish("2.0.0rc1", "two") == "['2.0.0rc1', '1.10.0', '1.9.0']\n"
    publish("1.9.0", "nine again")
    listed = json.loads((tmp_path / "to" / "versions.json").read_text())
    assert [one["version"] for one in listed if "latest" in one["aliases"]] == ["1.10.0"]
    read = {name: (tmp_path / "to" / name / "index.html").read_text() for name in ("latest", "1.9.0", "2.0.0rc1")}
    assert read == {"latest": "ten", "1.9.0": "nine again", "2.0.0rc1": "two"}
