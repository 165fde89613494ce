"""A project as make_project leaves it, with what an operator adds: comments, other apps, daemons of his own."""

import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.boinc.standin.config import Database
from tests.boinc.standin.project import StandinProject, empty_tables
from tests.places import ROOT
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project.install import install
from vcdl.boinc.project.install_options import InstallOptions
from vcdl.boinc.project.plan import plan_install

PROJECT_XML = b"""\
<boinc>
    <platform>
        <name>x86_64-pc-linux-gnu</name>
        <user_friendly_name>Linux running on an AMD x86_64 or Intel EM64T CPU</user_friendly_name>
    </platform>
    <!-- ours since 2019 -->
    <app>
        <name>fold</name>
        <user_friendly_name>Folding &amp; more</user_friendly_name>
    </app>
</boinc>
"""

CONFIG_XML = """\
<?xml version="1.0" ?>
<!-- edited by hand: ask Ada first -->
<boinc>
    <config>
        <long_name>Alpha &lt;&amp; Omega</long_name>
        <db_user>{user}</db_user>
        <db_name>{database}</db_name>
        <db_passwd></db_passwd>
        <db_host>localhost</db_host>
        <shmem_key>0x1111beef</shmem_key>
        <uldl_dir_fanout>1024</uldl_dir_fanout>
        <host>{host}</host>
        <min_sendwork_interval>6</min_sendwork_interval>  <!-- seconds -->
        <daily_result_quota>500</daily_result_quota>
        <one_result_per_user_per_wu>0</one_result_per_user_per_wu>
        <locality_scheduling/>
        <dont_generate_upload_certificates>1</dont_generate_upload_certificates>
        <ignore_upload_certificates>1</ignore_upload_certificates>
        <master_url>{url}</master_url>
        <download_url>{url}download</download_url>
        <upload_url>{url}file_upload_handler</upload_url>
        <download_dir>{path}/download</download_dir>
        <upload_dir>{path}/upload</upload_dir>
        <key_dir>{path}/keys/</key_dir>
    </config>
    <tasks>
        <task>
            <period>24 hours</period>
            <cmd>update_stats</cmd>
            <disabled>0</disabled>
        </task>
    </tasks>
    <daemons>
        <daemon>
            <cmd>feeder -d 3 </cmd>
        </daemon>
        <daemon>
            <cmd>transitioner -d 2 --sleep_interval 5</cmd>
        </daemon>
        <!-- of fold -->
        <daemon>
            <cmd>script_validator --app fold --init_script "fold_check files"</cmd>
        </daemon>
    </daemons>
</boinc>
"""

PLAN_CLASSES = b"""\
<plan_classes>
   <plan_class>
      <name> fold_mt </name>
      <min_ncpus>2</min_ncpus>
   </plan_class>
</plan_classes>
"""

_PROGRAM = """\
#!{python}
import sys
from pathlib import Path
sys.path.insert(0, {repository!r})
from tests.boinc.standin.signing import SigningKey
"""
_SIGN = """\
file, key = map(Path, sys.argv[1:])
print(SigningKey.load(key).sign(file.read_bytes()), end="")
"""
_VERIFY = """\
file, signature, key = map(Path, sys.argv[2:])
signed = SigningKey.load(key.with_name("code_sign_private")).signed(file.read_bytes(), signature.read_text())
sys.exit(0 if signed else 1)
"""


@dataclass(frozen=True)
class MadeProject:
    """Without VCDL in it."""

    standin: StandinProject
    database: BoincDatabase

    @classmethod
    def make(cls, path: Path, server: Database) -> "MadeProject":
        empty_tables(server)
        standin = StandinProject.make(path, server)
        (path / "upload" / "vcdl_mark").unlink()
        url = standin.url
        with_values = {"user": server.user, "database": server.name, "url": url, "path": path}
        (path / "config.xml").write_text(CONFIG_XML.format(host=socket.gethostname().split(".")[0], **with_values))
        (path / "project.xml").write_bytes(PROJECT_XML)
        (path / "plan_class_spec.xml").write_bytes(PLAN_CLASSES)
        (path / "html" / "user").mkdir(parents=True)
        (path / "html" / "user" / "schedulers.txt").write_text(f'<link rel="boinc_scheduler" href="{url}cgi">\n')
        for name in ("script_validator", "sign_executable", "feeder", "transitioner", "crypt_prog"):
            program = path / "bin" / name
            source = _SIGN if name == "sign_executable" else _VERIFY
            program.write_text(_PROGRAM.format(python=sys.executable, repository=str(ROOT)) + source)
            program.chmod(0o755)
        standin.execute("DELETE FROM app")
        return cls(standin, BoincDatabase(BoincProject.at(path)))

    @property
    def path(self) -> Path:
        return self.standin.path

    @property
    def project(self) -> BoincProject:
        return BoincProject.at(self.path)

    def install(self, **options: object) -> list[str]:
        """What was done."""
        wanted = InstallOptions(python=Path(sys.executable), **options)  # type: ignore[arg-type]
        return list(install(plan_install(self.project, self.database, wanted), self.database))

    def contents(self) -> dict[str, tuple[int, bytes]]:
        """Mode and content of each file, by name."""
        return {
            str(path.relative_to(self.path)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
            for path in sorted(self.path.rglob("*"))
            if path.is_file()
        }

    def edit(self, name: str, old: str, new: str) -> None:
        """As an operator does with an editor."""
        text = (self.path / name).read_text()
        assert old in text
        (self.path / name).write_text(text.replace(old, new))
