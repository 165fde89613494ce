"""Files that VCDL has written itself, after a disk, a person or another version has had them."""

import json
import math
import random
from collections.abc import Sequence
from decimal import Decimal

from fuzz.mutations import as_json, mutated, mutated_json
from fuzz.target import BrokenContractError, Target, hold
from fuzz.targets.of_boinc import CONFIG
from vcdl.boinc.grid.download_folder import Content
from vcdl.boinc.grid.manifest import Manifest, Manifests
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project.record import Record
from vcdl.client.model_json import parse_config
from vcdl.errors import FleetError, GridError, ModelError, RunFolderError, StoreError, WorkunitError
from vcdl.fleet.cost import cost_of
from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.ledger_rows import EndedRow, LaunchedRow, LedgerRow, PricedRow, SeenRow, encode
from vcdl.fleet.state import FleetGoal, FleetState
from vcdl.models.footprint import Footprint
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.store_claim import claim_key
from vcdl.stores.commit_log import CommitLog
from vcdl.stores.redis import _decode, _head_of
from vcdl.wire.layout import Layout, Variable
from vcdl.wire.workunit import Named, Normalisation, Training, Workunit

_SUMS = ("0" * 16, "f" * 16)


class JsonTarget(Target):
    """A target of JSON: its values are changed more often than its bytes."""

    words = (
        b"NaN",
        b"Infinity",
        b"1e999",
        b"null",
        b"[" * 3000,
        b'{"a":' * 3000,
        b"9" * 5000,
        b"\\ud800",
        b"\xff",
        b"-1",
    )

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        if dice.random() < 0.7:
            try:
                return as_json(mutated_json(dice, json.loads(data)))
            except (ValueError, RecursionError):
                pass
        return mutated(dice, data, others, self.words)


class Workunits(JsonTarget):
    """Files of workunit.json, as a client gets them."""

    name = "workunits"
    refuses = (WorkunitError,)

    def seeds(self) -> Sequence[bytes]:
        metrics = (Named("accuracy"), Named("top_k", {"k": 3}))
        training = Training(Named("adam", {"beta_1": 0.9}), 0.1, 8, 1, Named("mean_squared_error"), metrics)
        return [Workunit("j", 1, 0, 0, 142, seed=1, training=training).to_json().encode()]

    def take(self, data: bytes) -> None:
        unit = Workunit.from_json(_text(data))
        hold(unit.training.batch_size >= 1 and unit.training.local_epochs >= 1, "nothing to train")
        hold(Workunit.from_json(unit.to_json()) == unit, "it is read as another one")


class Models(JsonTarget):
    """Files of model.json, checked before Keras sees them."""

    name = "models"
    refuses = (ModelError,)

    def seeds(self) -> Sequence[bytes]:
        layers = [
            {
                "module": "keras.layers",
                "class_name": "Dense",
                "config": {"name": "d", "units": 4, "activation": "relu"},
                "registered_name": None,
            }
        ]
        model = {
            "module": "keras",
            "class_name": "Sequential",
            "config": {"name": "s", "layers": layers},
            "registered_name": None,
        }
        tensor = {"class_name": "__keras_tensor__", "config": {"shape": [None, 4], "keras_history": ["d", 0, 0]}}
        constant = {"class_name": "__numpy__", "config": {"value": [[1.5]], "dtype": "float32"}}
        key = {"class_name": "__slice__", "config": {"start": None, "stop": 1, "step": None}}
        operation = {"module": "keras.src.ops.numpy", "class_name": "Add", "config": {"name": "add"}}
        calls = [{"args": [tensor, constant, key], "kwargs": {}}]
        graph = {"layers": [*layers, {**operation, "registered_name": "Add", "name": "add", "inbound_nodes": calls}]}
        functional = {**model, "class_name": "Functional", "config": {"name": "f", **graph}}
        return [json.dumps(each).encode() for each in (model, functional)]

    def take(self, data: bytes) -> None:
        config = parse_config(data.decode(errors="surrogateescape"))
        text = json.dumps(config)
        hold("Lambda" not in text.replace("LambdaCallback", "") or '"class_name": "Lambda"' not in text, "code")


class PreparedFiles(JsonTarget):
    """Files of prepared.json."""

    name = "prepared"
    refuses = (RunFolderError,)

    def seeds(self) -> Sequence[bytes]:
        return [prepared_file(RunFolder(self.folder))]

    def take(self, data: bytes) -> None:
        folder = RunFolder(self.folder)
        folder.prepared_file.write_bytes(data)
        prepared = Prepared.read(folder)
        hold(prepared.layout.size >= 0, "a size below zero")
        hold(len(prepared.layout.fingerprint) == 16, "no fingerprint")
        hold(all(samples >= 1 for samples in prepared.shard_samples), "a shard without samples")
        hold(0 <= prepared.initial_norm < float("inf"), "a norm that is not finite")
        prepared.footprint.memory_bytes(8, 100)


def prepared_file(folder: RunFolder) -> bytes:
    """A prepared.json, which lies in the folder afterwards."""
    Prepared(
        shard_samples=(10, 20),
        has_test=False,
        normalisation=Normalisation(),
        layout=Layout((Variable("w", (3, 4), 0), Variable("b", (4,), 12))),
        initial_norm=1.0,
        store_key="key",
        footprint=Footprint(1.0, 1.0, 16),
        own_step=(0.1, 0.2, 0.3),
        store="store/",
    ).write(folder)
    return folder.prepared_file.read_bytes()


class ManifestFiles(JsonTarget):
    """A project's manifest of the files of a job."""

    name = "manifests"
    refuses = (GridError,)

    def seeds(self) -> Sequence[bytes]:
        content = Content("vcdl_0123", 100, "0123456789")
        return [Manifest(1, "template", content, {0: content}, {142: content}).to_json().encode()]

    def take(self, data: bytes) -> None:
        (self.folder / "config.xml").write_text(CONFIG)
        project = BoincProject.at(self.folder)
        project.manifests.mkdir(parents=True, exist_ok=True)
        (project.manifests / "j.json").write_bytes(data)
        manifest = Manifests(project).read("j")
        if manifest is None:
            raise BrokenContractError("a file that is there was not found")
        hold(all(isinstance(name, str) for name in manifest.names), "a name that is no text")


class StoreClaims(JsonTarget):
    """A folder's claim on its weights in a store."""

    name = "store_claims"
    refuses = (RunFolderError,)

    def seeds(self) -> Sequence[bytes]:
        folder = self._prepared()
        folder.store_claim_file.unlink(missing_ok=True)
        claim_key(folder, Prepared.read(folder), may_restore=True)
        return [folder.store_claim_file.read_bytes()]

    def take(self, data: bytes) -> None:
        folder = self._prepared()
        folder.store_claim_file.write_bytes(data)
        key = claim_key(folder, Prepared.read(folder), may_restore=True)
        hold(isinstance(key, str) and key != "", "a key that is none")

    def _prepared(self) -> RunFolder:
        folder = RunFolder(self.folder)
        if not folder.prepared_file.exists():
            folder.job_file.write_text("")
            prepared_file(folder)
        return folder


class ProjectRecords(JsonTarget):
    """The record of an install into a project."""

    name = "project_records"
    refuses = (GridError,)

    def seeds(self) -> Sequence[bytes]:
        edited = {"other.xml": {"before": "0" * 64, "fragment": "1" * 64, "after": "2" * 64}}
        return [json.dumps({"format": 1, "threads": 2, "edited": edited}).encode()]

    def take(self, data: bytes) -> None:
        path = self.folder / "vcdl" / "install" / "record.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        record = Record.of(self.folder)
        hold(record.threads >= 0, "threads below zero")
        record.without_us(self.folder / "config.xml", b"<boinc/>")


class FleetStates(JsonTarget):
    """A fleet's state.json."""

    name = "fleet_states"
    refuses = (FleetError,)

    def seeds(self) -> Sequence[bytes]:
        pool = {"cloud": "aws", "type": "m5.large", "region": "us-east-1", "zone": "us-east-1a"}
        state = json.loads(FleetState(FleetGoal.DOWN).to_json())
        return [
            FleetState(FleetGoal.DOWN).to_json().encode(),
            json.dumps({**state, "cooldowns": [{"pool": pool, "until_s": 5.0, "why": "no capacity"}]}).encode(),
        ]

    def take(self, data: bytes) -> None:
        state = FleetState.of_json(_text(data))
        hold(FleetState.of_json(state.to_json()) == state, "it is read as another one")


class FleetLedgers(JsonTarget):
    """A line of a fleet's ledger, changed, behind the honest ones."""

    name = "fleet_ledgers"
    refuses = (FleetError,)

    def seeds(self) -> Sequence[bytes]:
        rows: tuple[LedgerRow, ...] = (
            LaunchedRow("i-1", "aws", "m5.large", "us-east-1", "us-east-1a", 2, 0, 100.0),
            PricedRow(
                "m5.large",
                "us-east-1",
                "us-east-1a",
                100.0,
                Decimal("0.096"),
                Decimal("0.04"),
                Decimal(0),
                "2026-11-01",
                "",
            ),
            SeenRow(160.0, ("i-1",)),
            SeenRow(220.0, None),
            EndedRow("i-1", 300.0, Ending.UNKNOWN),
        )
        return [encode(row) for row in rows]

    def take(self, data: bytes) -> None:
        path = self.folder / "ledger.jsonl"
        path.write_bytes(b"".join(self.seeds()) + data.strip() + b"\n")
        ledger = Ledger(path)
        ledger.history().failures(400.0, 60.0, ("i-1",))
        cost = cost_of(ledger, 3600.0)
        hold(cost.spot_usd.is_finite() and cost.on_demand_usd.is_finite(), "a cost that is no number")
        hold(cost.live >= 0 and "\n".join(cost.lines()) != "", "nothing to show")


class CommitLogs(Target):
    """The commit log of a store in a folder: every line has a checksum."""

    name = "commit_logs"
    refuses = (StoreError,)

    def seeds(self) -> Sequence[bytes]:
        path = self.folder / "seed.log"
        log = CommitLog(path)
        log.make(_SUMS)
        log.catch_up()
        for version in range(1, 4):
            log.append(version, version % 2, _SUMS, ())
        return [path.read_bytes()]

    def take(self, data: bytes) -> None:
        path = self.folder / "commits.log"
        path.write_bytes(data)
        log = CommitLog(path)
        log.catch_up()
        hold(0 <= log.version <= 3 and log.slot in (0, 1), f"version {log.version} in slot {log.slot}")


class RedisRecords(Target):
    """A record of a subtask and, in inputs of several lines, the head of the weights."""

    name = "redis_records"
    refuses = (StoreError,)
    words = (b" ", b"\n", b"nan", b"inf", b"-1", b"9" * 5000, b"\xff", b"1e999", b"1_0")

    def seeds(self) -> Sequence[bytes]:
        return [b"7 3 0.25 0.5 j_e0001_s002_a0_v000000", b"era\ngeneration\n7\n6\n100\n4096"]

    def take(self, data: bytes) -> None:
        values = data.split(b"\n")
        if len(values) == 6:
            head = _head_of(values)
            hold(head is not None and head.size >= 0 and head.chunk_bytes > 0, "a size out of bounds")
        else:
            record = _decode("e0001_s002", data)
            hold(math.isfinite(record.weight) and math.isfinite(record.trust), "a weight that is not finite")


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
