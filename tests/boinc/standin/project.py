"""The folder of a stand-in project, and its rows in the database."""

import shutil
import socket
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

from tests.boinc.standin.config import Database, ProjectConfig
from tests.boinc.standin.schema import TABLES, Connection, change, create_tables, insert, rows
from tests.boinc.standin.signing import SigningKey
from tests.boinc.standin.tools import PROGRAMS, update_versions
from tests.places import ROOT

APP = "vcdl"
PLATFORM = "x86_64-pc-linux-gnu"
_REPOSITORY = ROOT
_ACCOUNT_KEY = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class StandinProject:
    """A project as `make_project` leaves it, with the app `vcdl`, one user and no app version."""

    path: Path
    database: Database

    @classmethod
    def make(cls, path: Path, database: Database, **settings: object) -> Self:
        """Make it; `settings` go into config.xml and win over those a new project has (None: leave out)."""
        host = socket.gethostname()
        for name in ("apps", "bin", "download", "keys", "templates", "upload", f"log_{host}", f"tmp_{host}"):
            (path / name).mkdir(parents=True)
        (path / "upload" / "vcdl_mark").touch()  # as install leaves it
        url = f"http://127.0.0.1:{_free_port()}/"
        config: dict[str, object] = {
            "long_name": "stand-in", "host": host, "db_host": "localhost", "db_name": database.name,
            "db_user": database.user, "db_passwd": "", "master_url": url, "download_url": f"{url}download",
            "upload_url": f"{url}file_upload_handler", "download_dir": path / "download", "upload_dir": path / "upload",
            "key_dir": path / "keys", "app_dir": path / "apps", "log_dir": path / f"log_{host}",
            "uldl_dir_fanout": 1024, "shmem_key": "0x1111beef", "min_sendwork_interval": 0, "max_wus_to_send": 50,
            "daily_result_quota": 500, "cache_md5_info": 1, "one_result_per_user_per_wu": 0, "send_result_abort": 1,
            "resend_lost_results": 1, "msg_to_host": 1, "next_rpc_delay": 10, "dont_generate_upload_certificates": 0,
            "ignore_upload_certificates": 0, **settings,
        }  # fmt: skip
        lines = [f"    <{key}>{escape(str(value))}</{key}>\n" for key, value in config.items() if value is not None]
        (path / "config.xml").write_text(
            f'<?xml version="1.0" ?>\n<boinc>\n  <config>\n{"".join(lines)}  </config>\n  <tasks>\n  </tasks>\n'
            "  <daemons>\n  </daemons>\n</boinc>\n"
        )
        (path / "project.xml").write_text(
            f"<boinc>\n    <platform>\n        <name>{PLATFORM}</name>\n        <user_friendly_name>Linux"
            "</user_friendly_name>\n    </platform>\n</boinc>\n"
        )
        for name in ("code_sign", "upload"):
            key = SigningKey.generate()
            key.save(path / "keys" / f"{name}_private")
            (path / "keys" / f"{name}_public").write_text(key.public_text)
        project = cls(path, database)
        project._write_program("create_work", "create_work")
        for name in PROGRAMS:
            project._write_program(name, f"tools {name}")
        for name in ("feeder", "script_validator", "sign_executable", "transitioner"):
            project._write_nothing(name)
        project._fill_database()
        return project

    @property
    def config(self) -> ProjectConfig:
        """As config.xml is now."""
        return ProjectConfig.read(self.path)

    @property
    def url(self) -> str:
        return self.config.settings["master_url"]

    @property
    def working_folder(self) -> Path:
        """Where bin/start lets daemons run."""
        return self.path / f"tmp_{self.config.settings['host']}"

    @property
    def account_key(self) -> str:
        return _ACCOUNT_KEY

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to reach the database by config.xml."""
        return {"MYSQL_UNIX_PORT": str(self.database.socket)}

    @property
    def code_sign_key(self) -> SigningKey:
        return SigningKey.load(self.path / "keys" / "code_sign_private")

    @property
    def upload_key(self) -> SigningKey:
        return SigningKey.load(self.path / "keys" / "upload_private")

    def connect(self) -> Connection:
        return self.database.connect()

    def insert(self, table: str, **values: object) -> int:
        """Add a row; returns its id."""
        with closing(self.connect()) as connection:
            row = insert(connection, table, **values)
            connection.commit()
            return row

    def execute(self, sql: str, *values: object) -> None:
        """Run a statement that changes rows."""
        with closing(self.connect()) as connection:
            connection.cursor().execute(sql, values)
            connection.commit()

    def change(self, table: str, row: int, **values: object) -> None:
        """Set columns of the row with that id."""
        with closing(self.connect()) as connection:
            change(connection, table, row, **values)
            connection.commit()

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """What a SELECT finds now."""
        with closing(self.connect()) as connection:
            return rows(connection, sql, *values)

    def stage(self, source: Path, name: str) -> None:
        """Put a file into download/, as bin/stage_file does."""
        target = self.config.download_path(name)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)

    def update_versions(self) -> None:
        """As bin/update_versions."""
        with closing(self.connect()) as connection:
            update_versions(self.path, connection)
            connection.commit()

    def _write_program(self, name: str, module: str) -> None:
        program = self.path / "bin" / name
        program.write_text(
            f"#!/bin/sh\nPYTHONPATH='{_REPOSITORY}' MYSQL_UNIX_PORT='{self.database.socket}' \\\n"
            f"    exec '{sys.executable}' -m tests.boinc.standin.{module} \"$@\"\n"
        )
        program.chmod(0o755)

    def _write_nothing(self, name: str) -> None:
        """A program that must be there; its work is done by the stand-in server."""
        program = self.path / "bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)

    def _fill_database(self) -> None:
        with closing(self.connect()) as connection:
            create_tables(connection)
        now = int(time.time())
        self.insert("platform", create_time=now, name=PLATFORM, user_friendly_name="Linux")
        self.insert("app", create_time=now, name=APP, user_friendly_name="VCDL")
        self.insert(
            "user", create_time=now, email_addr="volunteer@example.org", name="volunteer",
            authenticator=_ACCOUNT_KEY, cross_project_id="fedcba9876543210fedcba9876543210",
        )  # fmt: skip


def empty_tables(database: Database) -> None:
    """Leave no row, which is much quicker than new tables."""
    with closing(database.connect()) as connection:
        create_tables(connection)
        for table in TABLES:
            connection.cursor().execute(f"DELETE FROM `{table.name}`")
        connection.commit()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
