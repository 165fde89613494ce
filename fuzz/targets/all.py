"""Every target by its name."""

from fuzz.target import Target
from fuzz.targets.codecs import Codecs, Params
from fuzz.targets.data_files import KerasArchives, Pictures, Tables
from fuzz.targets.delivered import NewestWeights, Runtimes
from fuzz.targets.job_files import ClientFiles, FleetFiles, JobFiles
from fuzz.targets.journals import JournalFiles, Journals
from fuzz.targets.kept_files import (
    CommitLogs,
    FleetLedgers,
    FleetStates,
    ManifestFiles,
    Models,
    PreparedFiles,
    ProjectRecords,
    RedisRecords,
    StoreClaims,
    Workunits,
)
from fuzz.targets.npz import Checkpoints, DataSets, Splits
from fuzz.targets.of_boinc import InitDataFiles, Names, ProjectFiles, ResultDescriptions
from fuzz.targets.pools import Desks, Tasks
from fuzz.targets.service import SubmittedJobs, Tokens
from fuzz.targets.uploads import Headers, Uploads

_KINDS: tuple[type[Target], ...] = (
    Uploads, Headers, Codecs, Params, JobFiles, FleetFiles, ClientFiles, DataSets, Splits, Checkpoints, Journals,
    JournalFiles, InitDataFiles, ResultDescriptions, Names, ProjectFiles, Workunits, Models, PreparedFiles,
    ManifestFiles, FleetStates, FleetLedgers, CommitLogs, RedisRecords,
    StoreClaims, ProjectRecords, NewestWeights, Runtimes, Desks, Tasks, Tokens,
    SubmittedJobs, Pictures, Tables, KerasArchives,
)  # fmt: skip
TARGETS = {kind.name: kind for kind in _KINDS}
