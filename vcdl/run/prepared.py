"""`prepared.json`: the facts found when a job was prepared (vcdl.loop.preparation)."""

import itertools
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import msgspec

from vcdl.errors import RunFolderError, unreadable
from vcdl.files.atomic import atomic_write
from vcdl.files.version import __version__
from vcdl.job.lr_schedule import USUAL_BOOST, RateTrial
from vcdl.models.footprint import Footprint
from vcdl.run.folder import RunFolder
from vcdl.wire.layout import Layout
from vcdl.wire.workunit import Frozen, Normalisation

_FORMAT = 2
_TOO_MUCH = 1e300
"""Upper limit of any number: the product of two facts above it would overflow."""


@dataclass(frozen=True)
class Prepared:
    """Facts of a prepared job that are not in its job file."""

    shard_samples: tuple[int, ...]
    """Samples of each shard, by its number."""
    has_test: bool
    normalisation: Normalisation
    layout: Layout
    """The place of each trained variable in the weights."""
    initial_norm: float
    """‖W‖₂ of version 0."""
    store_key: str
    """The key of the weights in the store: each run gets a new key, so that two runs of a job never share weights. It
    is kept secret from clients, because random draws of the server depend on it."""
    footprint: Footprint
    own_step: tuple[float, ...]
    """Lengths of the server's own first step (vcdl.trust.own_step), which bound the first steps of strangers; empty if
    all clients are the submitter's own."""
    store: str
    """The address of the run's store, without a login (`vcdl.run.store_claim`)."""
    classes: tuple[str, ...] = ()
    """Names of the classes, by number of the model's output, or empty if they have no names."""
    classes_by_output: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Output's name → names of its classes, for a model with several outputs."""
    frozen: Frozen | None = None
    """The file of the weights that no training changes, or None if there are none."""
    short_job_boost: float = USUAL_BOOST
    """The factor by which the rate may be raised if the job is short, if the job leaves this to a trial."""
    rate_trial: RateTrial = RateTrial.NONE
    statistics_samples: int = 0
    """Samples from which the server computes the statistics of batch normalisation (vcdl.run.own_statistics). 0 if the
    model has none, or if an earlier version prepared the run, which uses the averages of clients."""

    def write(self, folder: RunFolder) -> None:
        """Write the facts to the run's folder.

        Raises:
            OSError: The file cannot be written.
        """
        with atomic_write(folder.prepared_file, private=True) as temporary:  # draws can be predicted from the key
            temporary.write_text(json.dumps({"format": _FORMAT, **asdict(self)}))

    @classmethod
    def read(cls, folder: RunFolder) -> Self:
        """Read the facts of a prepared run.

        Raises:
            RunFolderError: The file is missing, damaged, or of another format.
            FileUnavailable: It cannot be read now.
        """
        try:
            text = folder.prepared_file.read_text()
            _check_format(folder, json.loads(text))
            # Check the format before the fields: a run of another version lacks some, and "damaged" would be the wrong
            # message.
            prepared = msgspec.json.decode(text, type=cls)
            prepared._check()
            return prepared
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged_error(folder, repr(error)[:300]) from error
        except OSError as error:
            raise unreadable(folder.prepared_file, error) from error

    @staticmethod
    def check_format(folder: RunFolder) -> None:
        """Check that this version can read the run's format; ignore any other damage.

        Raises:
            RunFolderError: The run has another format.
        """
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            _check_format(folder, json.loads(folder.prepared_file.read_text()))

    def _check(self) -> None:
        """Check that a preparation could have found these facts.

        Raises:
            ValueError: A fact is impossible.
        """
        scale, offset = self.normalisation.scale, self.normalisation.offset
        # The file may come from another person's folder. Such numbers determine limits and allocations.
        sizes = (self.initial_norm, *vars(self.footprint).values(), *self.own_step)
        if not all(map(math.isfinite, (*scale, *offset))) or not all(0 <= size < _TOO_MUCH for size in sizes):
            raise ValueError("a number is negative or not finite")
        if not 1 <= self.short_job_boost < math.inf:
            raise ValueError("the learning rate is lowered, or raised without bound")
        if self.statistics_samples < 0:
            raise ValueError("a negative number of samples")
        if min(self.shard_samples, default=0) < 1:
            raise ValueError("a shard without samples")
        self._check_layout()

    def _check_layout(self) -> None:
        """Check that the variables follow one another without gaps; raise ValueError otherwise."""
        ends = itertools.accumulate((variable.size for variable in self.layout.variables), initial=0)
        # Rules and bounds slice the weights by these offsets: a gap or an overlap would mix variables.
        if any(variable.offset != end for variable, end in zip(self.layout.variables, ends, strict=False)):
            raise ValueError("variables that do not follow one another")
        if any(length < 0 for variable in self.layout.variables for length in variable.shape):
            raise ValueError("a variable of negative size")


def _check_format(folder: RunFolder, raw: dict[str, Any]) -> None:
    """Raise RunFolderError if the parsed file has another format than this version reads."""
    if raw["format"] != _FORMAT:
        raise RunFolderError(
            f"{folder.prepared_file} is of format {raw['format']!r}, and this version of vcdl ({__version__}) "
            f"reads format {_FORMAT}: continue with the version that started the run"
        )


def _damaged_error(folder: RunFolder, what: str) -> RunFolderError:
    return RunFolderError(
        f"{folder.prepared_file} cannot be read ({what}): the run cannot continue; start another with --out"
    )
