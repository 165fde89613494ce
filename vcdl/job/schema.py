"""The job file: one schema, and the frozen `Job` (docs/job-file.md). Keras checks the names of its parts later."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, PlainValidator, ValidationInfo, field_validator, model_validator

from vcdl.errors import JobError, StoreError
from vcdl.files.atomic import atomic_write
from vcdl.job.cut import fit_to_slots
from vcdl.job.data import DataSettings
from vcdl.job.keras_keys import KERAS_KEYS
from vcdl.job.model import ModelSettings
from vcdl.job.preset import Preset, with_preset
from vcdl.job.stop import StopSettings
from vcdl.job.training import TrainingSettings, usual_rate
from vcdl.job.transport import TransportSettings
from vcdl.job.trust import Trust, TrustSettings
from vcdl.job.update import DEFAULT, RULES, UPDATE, fitting
from vcdl.journal.monitor import Monitor
from vcdl.rules.base import Rule
from vcdl.stores.settings import StoreSettings
from vcdl.wire.task import DEFAULTS
from vcdl.wire.workunit import Normalisation, Training
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import JOB
from vcdl.yaml_schema.reading import Problem, ProblemsError, YamlDumper
from vcdl.yaml_schema.section import SECTION_AS_YAML, Section, load_section, section_of

PacingKind = Literal["rolling", "epoch"]
StoreConsistency = Literal["strong", "eventual"]
KeptUploads = Literal["needed", "all"]

# An interval between two versions is at least 1, so 0 can mean "none".
EVERY_EPOCH = 0
"""`Job.validate_every` when versions are evaluated at the end of an epoch only."""
# The limit is far above any machine's cores, so that only a typing error is refused.
_MOST_WORKERS = 1000
"""Most worker processes on one machine, as each imports Keras."""
_Count = Annotated[int, kinds.whole(1)]
_AboveZero = Annotated[float, kinds.above_zero()]
_SHORT_FORMS = {"pacing": "kind", "store": "url", "trust": "kind"}
"""Section → the key whose value may be given alone: `pacing: epoch`."""


LATE_AFTER = 1.5
"""Multiple of the 95th percentile of the turnarounds after which a subtask is late; of the median, once hosts would be
idle otherwise (vcdl.loop.lateness).
"""


class PacingSettings(Section):
    """The creation of subtasks: when, and how many in advance."""

    kind: Annotated[PacingKind, kinds.one_of(PacingKind)] = "rolling"
    queue_ahead: Annotated[int | Literal["auto"], kinds.whole(0, None, "auto")] = "auto"
    """Number of workunits kept ready beyond those in training."""
    grows_over: Annotated[float, kinds.fraction(zero=True, one=False)] = 0.1
    """Fraction of a rolling job over which its slots grow from an eighth, at least ten, to all; 0: it starts with all.
    """
    late_after: Annotated[float, kinds.at_least(1.0)] | None = LATE_AFTER
    """Multiple of a subtask's usual time after which a second host trains it as well; None: never."""


class ValidateSettings(Section):
    """How often the shared weights are validated, and on how many samples."""

    every: Annotated[int | Literal["epoch", "update"], kinds.whole(1, None, "epoch", "update")] = 10
    """A number of updates; `epoch`: only each epoch's end; `update`: 1."""
    samples: Annotated[int | Literal["all"], kinds.whole(1, None, "all")] = 2000


class GridSettings(Section):
    """How this machine runs the subtasks."""

    workers: Annotated[int | Literal["auto"], kinds.whole(1, _MOST_WORKERS, "auto")] = "auto"
    """Worker processes; `auto`: one a core."""
    threads: _Count = 1
    """Number of cores that a worker's training uses."""
    timeout_s: _AboveZero = 600.0
    tries: _Count = 5
    servers: _Count = 1
    """Number of parameter servers. 1: the run's own process; more: a process each."""


def _store_url(value: Any) -> str:
    """Return the address of a weight store unchanged if it is valid.

    Raises:
        ValueError: It is not; the message does not repeat the address, because it may contain a password.
    """
    if not isinstance(value, str):
        raise ValueError("expected file:FOLDER, redis://…, rediss://… or mysql://…")
    try:
        StoreSettings.parse(value)
    except StoreError as error:
        raise ValueError(str(error)) from None
    return value


class StoreSection(Section):
    """Where the shared weights are kept; vcdl.stores.settings parses the address."""

    url: Annotated[str, PlainValidator(_store_url)] | None = Field(default=None, repr=False)  # it may hold a password
    """The store's address; None: VCDL_STORE_URL, else a folder of the run."""
    consistency: Annotated[StoreConsistency, kinds.one_of(StoreConsistency)] = "strong"


class RetentionSettings(Section):
    """Files of a run that are kept longer than the run needs them."""

    uploads: Annotated[KeptUploads, kinds.one_of(KeptUploads)] = "needed"
    """`all`: keep every upload and the weights that its client started from, so that all can be folded again."""


class BoincSettings(Section):
    """How a BOINC project treats the job's workunits; other grids ignore it."""

    share: Annotated[int, kinds.whole(1, 100)] = 1
    """The job's share of the clients, relative to the project's other open jobs."""
    fresh_weights: Annotated[bool, kinds.true_or_false()] = True
    """Whether a task that waited starts from the newest weights, fetched from the project's web server."""
    deadline_s: _AboveZero = 3600.0
    """Longest deadline, in seconds, in which a client must report a subtask; after it another client gets the subtask.
    """
    shortest_deadline_s: _AboveZero = 300.0
    """Shortest deadline, in seconds. Between the two, it is three times the time that nearly all of the job's subtasks
    take."""
    account: Annotated[int | Literal["own"], kinds.whole(1, None, "own")] | None = None
    """The only account whose hosts get the subtasks; `own`: the account of the token with which the job was submitted.
    """


class Job(Section):
    """A valid and complete job file: every default is filled in, every path is absolute."""

    foreign_keys = KERAS_KEYS

    name: Annotated[
        str, kinds.text("[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 of a-z, 0-9, - and _, not beginning with - or _")
    ]
    preset: Annotated[Preset, kinds.one_of(Preset)] | None = None
    """The preset that fills in keys missing from the file."""
    seed: Annotated[int, kinds.whole(0, 2**32 - 1)] = 1
    model: ModelSettings
    data: DataSettings
    training: TrainingSettings = Field(default=TrainingSettings(), validate_default=True)
    update: Annotated[Rule, UPDATE, SECTION_AS_YAML] = Field(
        default_factory=lambda: RULES[DEFAULT](), validate_default=True
    )
    transport: TransportSettings = TransportSettings()
    trust: TrustSettings = Field(default=TrustSettings(), validate_default=True)
    pacing: PacingSettings = PacingSettings()
    stop: StopSettings = StopSettings()
    validate_: ValidateSettings = Field(default=ValidateSettings(), alias="validate")
    grid: GridSettings = GridSettings()
    store: StoreSection = StoreSection()
    retention: RetentionSettings = RetentionSettings()
    boinc: BoincSettings = BoincSettings()

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_preset(cls, raw: Any) -> Any:
        return with_preset(raw) if isinstance(raw, Mapping) else raw

    @field_validator("pacing", "store", "trust", mode="before")
    @classmethod
    def _may_be_one_word(cls, raw: Any, info: ValidationInfo) -> Any:
        return {_SHORT_FORMS[str(info.field_name)]: raw} if isinstance(raw, str) else raw

    @field_validator("training")
    @classmethod
    def _fits_optimizer_and_task(cls, training: TrainingSettings, info: ValidationInfo) -> TrainingSettings:
        data, given = info.data.get("data"), training.model_fields_set
        if data is None:
            return training
        if data.outputs is not None:
            problems = [
                Problem((key,), "belongs in data > outputs, where each output has its own; move it there")
                for key in ("loss", "metrics", "class_weight")
                if getattr(training, key) != getattr(TrainingSettings(), key)
            ]
            if problems:
                raise ProblemsError(problems)
        missing = {key: value for key, value in DEFAULTS.get(data.task, {}).items() if key not in given}
        if training.loss.name.lower() == "ctc" and "metrics" not in given:
            missing["metrics"] = ()  # no other measure can handle labels with fewer axes than the outputs
        if "learning_rate" in given:
            missing.pop("optimizer", None)  # the rate is Adam's
        training = training.model_copy(update=missing)
        # The task may have chosen another optimizer above, so the usual rate of the optimizer is filled in only now.
        if "learning_rate" not in given:
            training = training.model_copy(update={"learning_rate": usual_rate(training.optimizer)})
        return training if data.mask is None else training.masking()

    @field_validator("update")
    @classmethod
    def _fits_optimizer(cls, update: Rule, info: ValidationInfo) -> Rule:
        training = info.data.get("training")
        return update if training is None else fitting(update, training.optimizer.name, info.data.get("data"))

    @field_validator("trust")
    @classmethod
    def _compares_what_is_alike(cls, trust: TrustSettings, info: ValidationInfo) -> TrustSettings:
        transport = info.data.get("transport")
        if transport is not None and transport.feedback and trust.kind != "own" and trust.verify:
            problem = "an upload with transport > feedback cannot be rebuilt: set verify to 0, or `trust: own`"
            raise ProblemsError([Problem(("verify",), problem)])
        return trust

    @field_validator("stop")
    @classmethod
    def _is_measured(cls, stop: StopSettings, info: ValidationInfo) -> StopSettings:
        data, training = info.data.get("data"), info.data.get("training")
        # A section that was refused itself is missing in `info.data`. Its own problems are reported, which is enough.
        problems = [] if data is None or training is None else list(stop.problems(data, training))
        if problems:
            raise ProblemsError(problems)
        return stop

    @property
    def subtasks(self) -> int:
        """Number of subtasks of the whole job (epochs × shards), if no other condition ends it earlier."""
        return self.stop.epochs * self.data.shards

    @property
    def workers(self) -> int:
        """Number of worker processes of a run on this machine; `auto`: one for each core that this process may use."""
        return len(os.sched_getaffinity(0)) if self.grid.workers == "auto" else self.grid.workers

    @property
    def monitor(self) -> Monitor:
        """The measure by which the job is judged, with the direction in which it improves."""
        return self.stop.monitor_for(self.data, self.training)

    def training_on(self, normalisation: Normalisation, rate: float = 1.0) -> Training:
        """Return the settings of a training as clients receive them.

        Args:
            normalisation: The computed normalisation of the data.
            rate: Factor on the job's peak learning rate.
        """
        outputs = tuple(output.to_wire() for output in self.data.outputs or ())
        return replace(self.training.to_wire(normalisation, rate), outputs=outputs)

    @property
    def keeps_uploads(self) -> bool:
        """Whether the run keeps every upload, and the weights before its training, to apply all of them again later."""
        return self.retention.uploads == "all"

    @property
    def late_after(self) -> float:
        """Multiple of a subtask's usual time after which a second host trains it too; infinite: none ever does."""
        return math.inf if self.pacing.late_after is None else self.pacing.late_after

    @property
    def grows_over(self) -> float:
        """Fraction of the job over which its slots grow to all; 0: it uses all slots from the start.

        It is 0 for jobs that create all subtasks of an epoch at once, and for jobs of strangers. There, hosts that
        appear after the job's first updates are limited until one of their uploads was verified, and slots that grow
        made nearly all hosts late ones: 351 uploads of 60 volunteers were refused instead of 36 (docs/decisions/144).
        """
        return self.pacing.grows_over if self.pacing.kind == "rolling" and not self.is_for_strangers else 0.0

    @property
    def validate_every(self) -> int:
        """Number of versions from one evaluation to the next; EVERY_EPOCH: each epoch's last version only."""
        every = self.validate_.every
        return EVERY_EPOCH if every == "epoch" else 1 if every == "update" else int(every)

    @property
    def is_for_strangers(self) -> bool:
        """Whether clients may be hostile, so that uploads are checked and the effect of each one is bounded."""
        return self.trust.kind == "strangers"

    @property
    def rolls_back(self) -> bool:
        """Whether the job rolls back to its last good version after a collapse."""
        return self.is_for_strangers and self.trust.rollback

    @property
    def needs_bases(self) -> bool:
        """Whether applying an upload needs the weights that its client started from, even if the update rule does not.

        Two things need them: codecs that send the change only, and jobs of strangers, which measure the length of each
        step.
        """
        return self.transport.needs_bases or self.is_for_strangers

    @property
    def may_run_code(self) -> bool:
        """Whether workers may run Python code of the job; never in a job of strangers."""
        return self.model.code is not None and not self.is_for_strangers

    @property
    def verifies(self) -> bool:
        """Whether the server retrains a sample of the uploads to verify them; only in jobs of strangers."""
        return self.is_for_strangers and self.trust.verify > 0

    def trusting(self, trust: Trust) -> Self:
        """Return a copy of the job with `trust: auto` replaced by `trust`; with another kind the job itself."""
        if self.trust.kind != "auto":
            return self
        return self.model_copy(update={"trust": self.trust.model_copy(update={"kind": trust})})

    def to_plain_values(self) -> dict[str, Any]:
        """Return the job as the values of a job file (texts, numbers, lists, mappings), with all defaults written out.

        Keys without a value are left out.
        """
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        # A job file with `split: iid` and `concentration` is refused, and these values must be readable as a job file.
        if self.data.split == "iid":
            del values["data"]["concentration"]
        return values

    def to_yaml(self) -> str:
        """Return the job as the text of a job file, which `load_frozen_job` reads back as an equal job."""
        return as_yaml(self.to_plain_values())


def as_yaml(values: Any, **form: Any) -> str:
    """Return values of a job file as YAML text, with keys in their given order.

    Args:
        values: Texts, numbers, lists and mappings.
        form: Further arguments of yaml.dump, which win over ours.
    """
    return str(yaml.dump(values, Dumper=YamlDumper, sort_keys=False, **{"width": 110, **form}))


def job_of(values: Mapping[str, Any], origin: str) -> Job:
    """Return the job of values that come from no file, such as a request; paths in them are not checked.

    Args:
        values: Key → value, as in a job file.
        origin: Where they come from, for error messages.

    Raises:
        JobError: They are no valid job.
    """
    return section_of(Job, values, origin)


def load_job(path: Path, overrides: Sequence[str] = (), slots: int | None = None) -> Job:
    """Read and check a job file, download remote data, and choose the shards and batch size that the file leaves open.

    Args:
        path: The file.
        overrides: Keys to replace, such as `"stop.epochs=2"`.
        slots: Subtasks trained at the same time, by which the shards are chosen; None: the workers of this machine.

    Raises:
        JobError: The file is no valid job.
        DataError, FileUnavailable, RunFolderError: Remote data cannot be fetched or stored.
        PluginError: An installed package with a part of the job is broken.
    """
    job = load_section(Job, JOB, path, overrides, path.parent)
    job.data.fetch()
    # The numbers are chosen last, because they depend on the data and on all other keys. The run's own job file then
    # contains them.
    data, training = fit_to_slots(job.data, job.training, job.stop.epochs, slots or job.workers)
    return job.model_copy(update={"data": data, "training": training})


def load_frozen_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """Read a file that `save_job` wrote. Files that it names need not exist, and no data are downloaded.

    Args:
        path: The file.
        overrides: Keys to replace, such as `"stop.epochs=2"`.

    Raises:
        JobError: It is no valid job.
    """
    return load_section(Job, JOB, path, overrides)


def save_job(job: Job, path: Path) -> None:
    """Write the job to a file atomically, with all defaults, so that `load_frozen_job` reads an equal job.

    Raises:
        JobError: It cannot be written.
    """
    try:
        with atomic_write(path) as temporary:
            temporary.write_text(f"# Made by VCDL: the job as this run follows it.\n{job.to_yaml()}", encoding="utf-8")
    except OSError as error:
        raise JobError(f"{path}: cannot be written ({error.strerror}); check the folder and the disk") from error
