"""Parts of other packages: they are found, and what is wrong with one is said with its package."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from vcdl.errors import PluginError, RunFolderError
from vcdl.files.plugins import Parts
from vcdl.job.update import RULES
from vcdl.rules.base import Rule
from vcdl.run.folder import RunFolder
from vcdl.run.kind import RUN_KINDS, RunKind, driven_kind, usable_kinds

MEDIAN = (ROOT / "examples" / "plugin" / "vcdl_example" / "median.py").read_text(encoding="utf-8")


def installed(folder: Path, package: str, name: str, module: str, code: str = MEDIAN, kind: str = "rules") -> None:
    """A package with a part in one file, as pip leaves it."""
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[vcdl.{kind}]\n{name} = {module}:Median\n", encoding="utf-8")
    (folder / f"{module}.py").write_text(code, encoding="utf-8")


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts[type[Rule]]:
    """The rules of an environment with one folder more."""
    monkeypatch.syspath_prepend(tmp_path)
    return Parts("rule", RULES.wrong)


def test_a_rule_of_another_package_is_there_beside_ours(tmp_path: Path, rules: Parts[type[Rule]]) -> None:
    installed(tmp_path, "theirs", "median", "theirs_median")
    assert rules["median"]().rule == "median"
    assert rules.package("median") == "theirs 1.2"
    assert rules.package("vc_asgd") is None
    assert (list(rules)[-1], "forecast" in rules) == ("median", True), "ours first"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        (
            "median",
            "import nothing_of_this_name",
            r"theirs 1\.2 cannot be imported \(ModuleNotFoundError: .*nothing_of",
        ),
        ("median", "Median = 5", r"theirs 1\.2, .*:Median, is no subclass of vcdl\.rules\.base\.Rule"),
        ("middle", MEDIAN, r"the rule middle of theirs 1\.2, .*, calls itself 'median'"),
        ("vc_asgd", MEDIAN, r"theirs 1\.2 has a rule vc_asgd, which is the name of one of ours"),
    ],
)
def test_what_is_wrong_with_a_part_is_said_with_its_package(
    tmp_path: Path, rules: Parts[type[Rule]], name: str, code: str, said: str
) -> None:
    installed(tmp_path, "theirs", name, f"wrong_{abs(hash((name, code)))}", code)
    with pytest.raises(PluginError, match=said):
        rules[name]
    assert rules["forecast"]().rule == "forecast", "the other rules are as good as ever"


def test_two_packages_with_a_rule_of_one_name_are_both_named(tmp_path: Path, rules: Parts[type[Rule]]) -> None:
    installed(tmp_path, "theirs", "median", "first_median")
    installed(tmp_path, "others", "median", "second_median")
    with pytest.raises(PluginError, match=r"(theirs|others) 1\.2 and (theirs|others) 1\.2 both have a rule median"):
        rules["median"]


def test_a_checkout_that_was_not_installed_again_says_so() -> None:
    with pytest.raises(PluginError, match="install it again"):
        list(Parts("nothing"))


def test_a_grid_that_another_command_begins_is_refused_with_it() -> None:
    with pytest.raises(PluginError, match="start one with `vcdl submit`"):
        driven_kind("boinc")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('no cable')", r"theirs 1\.2 cannot be imported \(OSError: no cable\)"),
        ("Median = 5", r"is not a vcdl\.run\.kind\.RunKind"),
        ("from vcdl.run.kind import LOCAL as Median", "calls itself 'local'"),
    ],
)
def test_a_run_whose_grid_cannot_be_had_says_why_and_other_runs_do_not_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    installed(tmp_path, "theirs", "cables", f"grid_{abs(hash(code))}", code, "grids")
    kinds: Parts[RunKind] = Parts("grid", RUN_KINDS.wrong)
    monkeypatch.setattr("vcdl.run.kind.RUN_KINDS", kinds)
    monkeypatch.setattr("vcdl.run.folder.RUN_KINDS", kinds)
    folder = RunFolder(tmp_path)
    folder.kind_file.write_text("cables")
    with pytest.raises(RunFolderError, match=said):
        assert folder.kind
    assert {kind.name for kind in usable_kinds()} == {"local", "pool", "boinc", "simulated"}


@pytest.mark.process
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_reads_no_package_of_others(tmp_path: Path, option: str) -> None:
    installed(tmp_path, "theirs", "median", "theirs_median", "raise SystemExit(5)")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom vcdl.cli import exit_code_of\n"
    code += f"assert exit_code_of([{option!r}]) == 0\nassert 'importlib.metadata' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_guide_names_every_door() -> None:
    guide = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    groups = re.findall(r'^\[project\.entry-points\."(.+)"\]$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(re.findall(r"^\| `(vcdl\.\w+)` \|", guide, re.MULTILINE)) == set(groups)
