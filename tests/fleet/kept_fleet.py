"""A fleet in the cloud of tests/fleet/fake_cloud.py, with its folder and keeper: all that outlives a killed process is in `cloud` and on disk."""

from dataclasses import dataclass
from pathlib import Path

from tests.fleet.fake_cloud import Clock, FakeCloud
from tests.fleet.fleet_files import AWS, settings_of
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.instance import Pool
from vcdl.fleet.keeper import Keeper
from vcdl.fleet.settings import FleetSettings

POOLS = (Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1a"), Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1b"))


@dataclass
class KeptFleet:
    settings: FleetSettings
    cloud: FakeCloud
    folder: FleetFolder
    keeper: Keeper

    @classmethod
    def make(cls, path: Path, *overrides: str, text: str = AWS) -> "KeptFleet":
        settings = settings_of(path, *overrides, text=text)
        cloud = FakeCloud(settings, Clock())
        folder = FleetFolder.beside(path / "fleet.yaml", settings.name)
        return cls(settings, cloud, folder, cls.keeper_of(settings, cloud, folder))

    @staticmethod
    def keeper_of(settings: FleetSettings, cloud: FakeCloud, folder: FleetFolder) -> Keeper:
        return Keeper(settings, cloud, folder, lambda: "#cloud-config\n", cloud.clock)

    def another_process(self) -> Keeper:
        """What is left after a kill: the cloud and the disk."""
        return self.keeper_of(self.settings, self.cloud, self.folder)

    def later(self, seconds: float) -> None:
        self.cloud.clock.sleep(seconds)
        self.cloud.boot()
