"""Assemble the parts of a fleet from its fleet file.

Only the client library of the fleet's own cloud is imported, so that the other one need not be installed.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vcdl.errors import FleetError, JobError
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.prices import PriceSource, PriceTable
from vcdl.fleet.project import ProjectDatabase, weak_key
from vcdl.fleet.provider import Provider
from vcdl.fleet.settings import CLOUDS, Cloud, FleetSettings, load_fleet_settings
from vcdl.yaml_schema.section import section_of

if TYPE_CHECKING:
    from vcdl.fleet.controller import Controller

_NEEDED = r"""^(name|cloud|gcp_project):\s*["']?([A-Za-z0-9_-]+)"""
"""Matches the keys of a fleet file that `vcdl fleet down` needs, each at the beginning of a line."""


def open_provider(settings: FleetSettings) -> Provider:
    """Import the provider of the fleet's cloud and create it, without calling the cloud yet.

    Raises:
        FleetError, PluginError: The client library is missing, or the plugin cannot be loaded.
    """
    kind: type[Provider] = CLOUDS[settings.cloud]
    return kind.of_fleet(settings)


def open_price_source(cloud: Cloud, environment: Mapping[str, str], known: PriceTable | None = None) -> PriceSource:
    """Open the source of a cloud's prices.

    Args:
        cloud: Name of the cloud.
        environment: Environment variables, in which the source may look for credentials.
        known: Prices that are known already, so that list prices in it need not be fetched.

    Raises:
        FleetError, FleetNotAuthorised, PluginError: The cloud has no list of prices, or credentials or a library are
            missing.
    """
    kind = CLOUDS[cloud]
    if not hasattr(kind, "price_source"):
        raise FleetError(f"{cloud} has no list of prices here: write its prices into prices.csv (docs/fleet-cost.md)")
    source: PriceSource = kind.price_source(environment, known)
    return source


@dataclass(frozen=True)
class Fleet:
    """The parts of a fleet that commands use; each is created at its first use."""

    file: Path
    settings: FleetSettings

    @classmethod
    def of_file(cls, file: Path, overrides: Sequence[str] = ()) -> Self:
        """Read a fleet file, with changes such as `capacity.target=8`, and return its fleet.

        Raises:
            JobError: The file is missing or invalid.
        """
        return cls(file, load_fleet_settings(file, overrides))

    @classmethod
    def to_end(cls, file: Path, overrides: Sequence[str], name: str | None, gcp_project: str | None) -> Self:
        """Return a fleet that can only be taken down, even if its file is faulty or missing.

        That needs only the fleet's name and its cloud. They are searched for in a faulty file.

        Args:
            file: The fleet file.
            overrides: Changes of it, such as `capacity.target=8`.
            name: Name of the fleet, or None to read it from the file. With a name the file is not read.
            gcp_project: Id of the GCP project, or None for a fleet on AWS or to read it from the file.

        Raises:
            JobError: The file is faulty, and the name, or the project of a fleet on GCP, cannot be found in it.
        """
        said = {"name": name, "gcp_project": gcp_project}
        try:
            if name is None:
                return cls.of_file(file, overrides)
        except JobError as wrong:
            with suppress(OSError):
                # Search the lines instead of parsing YAML: the file may be broken, and `down` must still find what
                # costs money.
                lines = re.findall(_NEEDED, file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
                said |= {key: value for key, value in lines if said.get(key) is None}
            if said["name"] is None or (said.get("cloud") == "gcp" and said["gcp_project"] is None):
                raise JobError(f"{wrong}\nwithout a fleet file: `vcdl fleet down --name NAME`") from None
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        values = {
            "name": said["name"],
            "cloud": "gcp" if said["gcp_project"] else "aws",
            "gcp_project": said["gcp_project"],
            # The schema requires these keys. Nothing is launched with them.
            "project": {"url": "https://unused.invalid/", "account_key_env": "UNUSED"},
            "capacity": {"target": 0},
            "instances": {"types": ["unused"]},
            "places": [{"region": "us-central1" if said["gcp_project"] else region}],
        }
        return cls(file, section_of(FleetSettings, values, "vcdl fleet down"))

    @property
    def folder(self) -> FleetFolder:
        return FleetFolder.beside(self.file, self.settings.name)

    @cached_property
    def provider(self) -> Provider:
        """The provider of the fleet's cloud.

        Raises:
            FleetError: The client library is missing.
        """
        return open_provider(self.settings)

    @cached_property
    def controller(self) -> "Controller":
        """The controller of the fleet.

        Raises:
            FleetError: The provider cannot be opened.
        """
        # Import it here, so that commands that make no pass start faster.
        from vcdl.fleet.controller import Controller

        folder = self.settings.capacity.project_dir  # with `follow: queue` only
        project = None if folder is None else ProjectDatabase(folder, self.settings.capacity.unit)
        parts = self.settings, self.provider, self.folder, self.user_data
        asked = (None, None) if project is None else (project.queue, project.hosts)
        return Controller(*parts, queue=asked[0], price_source=self.price_source, hosts=asked[1])

    def price_source(self) -> PriceSource:
        """Open the source of the cloud's prices.

        Raises:
            FleetError: It cannot be opened.
        """
        return open_price_source(self.settings.cloud, os.environ, PriceTable.current())

    @cached_property
    def weak_key(self) -> str:
        """The account's weak key, which instances get.

        Raises:
            FleetError: There is no account key, or the project does not know it.
        """
        return weak_key(self.settings.project.url, self.settings.project.account_key(os.environ))

    def user_data(self) -> str:
        """Return the cloud-init file of new instances, which contains the account key: never log it.

        Raises:
            FleetError: There is no usable account key.
        """
        from vcdl.fleet.machine.cloud_init import user_data

        return user_data(self.settings, self.weak_key)
