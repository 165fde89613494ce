"""A fleet in the fake cloud, with its folder and controller. Only `cloud` and the disk survive a kill."""

from dataclasses import dataclass
from pathlib import Path

from tests.fleet.fake_cloud import Clock, FakeCloud
from tests.fleet.fleet_files import AWS, settings_of
from vcdl.fleet.controller import Controller
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.instance import Pool
from vcdl.fleet.run import up
from vcdl.fleet.settings import FleetSettings

POOLS = (Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1a"), Pool("aws", "t3.2xlarge", "us-east-1", "us-east-1b"))


@dataclass
class FakeFleet:
    settings: FleetSettings
    cloud: FakeCloud
    folder: FleetFolder
    controller: Controller

    @classmethod
    def make(cls, path: Path, *overrides: str, text: str = AWS) -> "FakeFleet":
        settings = settings_of(path, *overrides, text=text)
        cloud = FakeCloud(settings, Clock())
        folder = FleetFolder.beside(path / "fleet.yaml", settings.name)
        return cls(settings, cloud, folder, cls.controller_of(settings, cloud, folder))

    @classmethod
    def begun(cls, path: Path, *overrides: str) -> "FakeFleet":
        """A fleet that is to be up; nothing is launched yet."""
        made = cls.make(path, *overrides)
        made.controller.change(up)
        return made

    @staticmethod
    def controller_of(settings: FleetSettings, cloud: FakeCloud, folder: FleetFolder) -> Controller:
        return Controller(settings, cloud, folder, lambda: "#cloud-config\n", cloud.clock, price_source=lambda: cloud)

    def another_process(self) -> Controller:
        """A controller with nothing but the cloud and the disk, as after a kill."""
        return self.controller_of(self.settings, self.cloud, self.folder)

    def later(self, seconds: float) -> None:
        self.cloud.clock.sleep(seconds)
        self.cloud.boot()
