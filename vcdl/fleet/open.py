"""A fleet put together from its file: settings, folder, cloud, keeper. The cloud's client library is imported here, and only that one."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vcdl.errors import FleetError
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.provider import Provider
from vcdl.fleet.settings import FleetSettings, load_fleet_settings

if TYPE_CHECKING:
    from vcdl.fleet.keeper import Keeper

_EXTRAS = {"aws": ("boto3", "fleet"), "gcp": ("google-cloud-compute", "gcp")}


def open_provider(settings: FleetSettings) -> Provider:
    """Nothing is asked of the cloud yet. Raises FleetError when its client library is not installed."""
    try:
        if settings.cloud == "aws":
            from vcdl.fleet.aws.provider import AwsProvider

            return AwsProvider(settings)
        from vcdl.fleet.gcp.provider import GcpProvider

        return GcpProvider(settings)
    except ImportError as error:
        package, extra = _EXTRAS[settings.cloud]
        raise FleetError(f"cloud: {settings.cloud} needs the package {package}: pip install 'vcdl[{extra}]'") from error


@dataclass(frozen=True)
class Fleet:
    """What the commands work with; each part is made when it is first used."""

    file: Path
    settings: FleetSettings

    @classmethod
    def of_file(cls, file: Path, overrides: Sequence[str] = ()) -> Self:
        """Raises JobError."""
        return cls(file, load_fleet_settings(file, overrides))

    @property
    def folder(self) -> FleetFolder:
        return FleetFolder.beside(self.file, self.settings.name)

    @cached_property
    def provider(self) -> Provider:
        """Raises FleetError."""
        return open_provider(self.settings)

    @cached_property
    def keeper(self) -> "Keeper":
        """Raises FleetError."""
        from vcdl.fleet.keeper import Keeper
        from vcdl.fleet.queue import ProjectQueue

        folder = self.settings.capacity.project_dir
        queue = ProjectQueue(folder).read if self.settings.capacity.follow == "queue" and folder is not None else None
        return Keeper(self.settings, self.provider, self.folder, self.user_data, queue=queue)

    def user_data(self) -> str:
        """Of new instances. Raises FleetError when there is no account key."""
        from vcdl.fleet.machine import user_data

        return user_data(self.settings, self.settings.project.account_key(os.environ))
