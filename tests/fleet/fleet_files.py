"""Fleet files for tests."""

from pathlib import Path

from vcdl.fleet.settings import FleetSettings, load_fleet_settings

AWS = """\
name: cifar
cloud: aws
project: {url: https://boinc.example.org/mine/, account_key_env: VCDL_TEST_KEY}
capacity: {unit: vcpu, target: 40, max: 80}
instances: {types: [t3.2xlarge]}
places:
  - {region: us-east-1}
"""


def fleet_file(folder: Path, text: str = AWS) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def settings_of(folder: Path, *overrides: str, text: str = AWS) -> FleetSettings:
    return load_fleet_settings(fleet_file(folder, text), overrides)
