"""`prepared.json`: the facts found when a job was prepared (vcdl.run.preparation)."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from vcdl import __version__
from vcdl.errors import RunFolderError, unreadable
from vcdl.files.atomic import atomic_write
from vcdl.models.footprint import Footprint
from vcdl.run.folder import RunFolder
from vcdl.wire.weights import Layout, Variable
from vcdl.wire.workunit import Normalisation

_FORMAT = 1


@dataclass(frozen=True)
class Prepared:
    """Facts of a prepared job that are not in its job file."""

    shard_samples: tuple[int, ...]
    """By number of the shard."""
    has_test: bool
    normalisation: Normalisation
    layout: Layout
    initial_norm: float
    """‖W‖₂ of version 0."""
    store_key: str
    """The key of the weights in the store: a new one for each run, so that two runs of a job never share weights.
    Clients never learn it: by it the workunits are drawn that two hosts train.
    """
    footprint: Footprint
    own_step: tuple[float, ...]
    """Lengths of the server's own first step (vcdl.run.own_step), for bounds; empty where clients are trusted."""
    store: str
    """The address of that store, without a login (`vcdl.run.store_address`)."""

    def write(self, folder: RunFolder) -> None:
        """Raises OSError."""
        with atomic_write(folder.prepared_file) as temporary:
            temporary.write_text(json.dumps({"format": _FORMAT, **asdict(self)}))

    @classmethod
    def read(cls, folder: RunFolder) -> Self:
        """Raises RunFolderError for a file that is missing or damaged, FileUnavailable."""
        try:
            raw: dict[str, Any] = json.loads(folder.prepared_file.read_text())
            if raw["format"] != _FORMAT:
                raise RunFolderError(
                    f"{folder.prepared_file} is of format {raw['format']!r}, and this version of vcdl ({__version__}) "
                    f"reads format {_FORMAT}: go on with the version that began the run"
                )
            norm = raw["normalisation"]
            variables = (Variable(v["path"], tuple(v["shape"]), v["offset"]) for v in raw["layout"]["variables"])
            return cls(
                shard_samples=tuple(raw["shard_samples"]),
                has_test=raw["has_test"],
                normalisation=Normalisation(tuple(norm["scale"]), tuple(norm["offset"])),
                layout=Layout(tuple(variables)),
                initial_norm=raw["initial_norm"],
                store_key=raw["store_key"],
                footprint=Footprint(**raw["footprint"]),
                own_step=tuple(raw["own_step"]),
                store=raw["store"],
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{folder.prepared_file} cannot be read ({error!r}): the run cannot go on; start another with --out"
            ) from error
        except OSError as error:
            raise unreadable(folder.prepared_file, error) from error
