"""What BOINC's programs write for ours: init_data.xml, descriptions and names of results, a project's config.xml."""

from collections.abc import Sequence
from pathlib import Path

from fuzz.target import Target, hold
from vcdl.boinc.grid.environment import environment_file, read_environment
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import output_file, workunit_and_result
from vcdl.client.init_data import INIT_DATA_FILE, InitData
from vcdl.client.slot import SlotError
from vcdl.errors import GridError, WorkunitError
from vcdl.wire.workunit import WorkunitName

_INIT_DATA = """<app_init_data>
<major_version>8</major_version>
<client_pid>4711</client_pid>
<project_dir>/var/lib/boinc/projects/example.org</project_dir>
<authenticator>secret</authenticator>
<project_preferences>
<ncpus>99</ncpus>
</project_preferences>
<wu_cpu_time>12.500000</wu_cpu_time>
<rsc_memory_bound>2000000000.000000</rsc_memory_bound>
<checkpoint_period>60.000000</checkpoint_period>
<ncpus>2.000000</ncpus>
<gpu_type>NVIDIA</gpu_type>
<gpu_device_num>0</gpu_device_num>
<host_info>
    <ncpus>8</ncpus>
</host_info>
</app_init_data>
"""
_DESCRIPTION = """<file_info>
    <name>j_e0001_s001_a0_v000000_0_r123_0</name><upload_when_present/>
</file_info>
<result>
    <file_ref><file_name>j_e0001_s001_a0_v000000_0_r123_0</file_name><open_name>update.h5</open_name></file_ref>
</result>
"""
CONFIG = """<boinc>
  <config><master_url>http://localhost/p/</master_url><upload_dir>upload</upload_dir><db_name>p</db_name>
  <download_dir>download</download_dir><uldl_dir_fanout>1024</uldl_dir_fanout><host>h</host></config>
</boinc>
"""


class InitDataFiles(Target):
    """What a BOINC client writes into the slot of a task."""

    name = "init_data"
    refuses = (SlotError,)
    words = (
        b"<ncpus>", b"</ncpus>", b"<client_pid>", b"1e999", b"nan", b"-1", b"<![CDATA[", b"<!--", b"&lt;", b"\xff\xfe",
        b"</app_init_data>", b"<project_preferences>", b"\n", b"9" * 5000, b"\r\n", b"\0", b"1_0", b" 1 ", "٣".encode(),
    )  # fmt: skip

    def seeds(self) -> Sequence[bytes]:
        return [_INIT_DATA.encode(), b"<app_init_data>\n</app_init_data>\n"]

    def take(self, data: bytes) -> None:
        (self.folder / INIT_DATA_FILE).write_bytes(data)
        found = InitData.read(self.folder)
        for number in (found.cpu_s, found.checkpoint_period_s, found.cpus, found.memory_bytes):
            hold(0 <= number < float("inf"), f"a value of {number}")
        hold(found.gpu_device >= -1 and found.client_pid >= 0, "a negative number")


class ResultDescriptions(Target):
    """The description of a result in BOINC's database, and the path that it leads to."""

    name = "results"
    refuses = (GridError,)
    words = (
        b"<file_ref>", b"</file_ref>", b"<open_name>update.h5</open_name>", b"../../etc/passwd", b"<!DOCTYPE a [",
        b"&a;", b"<!ENTITY a 'b'>", b"<file_name>", b"\0", b"&#0;", b"&#x10ffff;", b"<a>" * 2000, b"\xff", b"/",
        b"..", b"x" * 300,
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "config.xml").write_text(CONFIG)
        self._project = BoincProject.at(folder)

    def seeds(self) -> Sequence[bytes]:
        return [_DESCRIPTION.encode()]

    def take(self, data: bytes) -> None:
        path = self._project.upload_path(output_file(data))
        top = self._project.upload_dir
        hold(path.parent.parent == top, f"a path outside of the uploads: {path}")
        path.exists()


class Names(Target):
    """Names of uploaded files."""

    name = "names"
    refuses = (WorkunitError,)
    words = (
        b"_e0001",
        b"_s001",
        b"_a0",
        b"_v000000",
        b"_0_r1_0",
        b"9" * 5000,
        b"\xff",
        b"\n",
        b"/",
        b"\0",
        "٣".encode(),
    )

    def seeds(self) -> Sequence[bytes]:
        return [b"j_e0001_s001_a0_v000000_0_r123_0", b"a-b_e12345_s1234_a11_v1234567"]

    def take(self, data: bytes) -> None:
        workunit, result = workunit_and_result(Path(data.decode(errors="surrogateescape").replace("\0", "") or "x"))
        hold(result >= 0, "a negative number of a result")
        name = WorkunitName.parse(workunit)
        hold(name.job.isascii() and "/" not in workunit, "a name that is no file's")
        again = f"{name.job}_{name.subtask}_a{name.attempt}_v{name.base_version:06d}"
        hold(WorkunitName.parse(again) == name, "another name for its parts")


class ProjectFiles(Target):
    """A project's config.xml and vcdl/environment; the first byte chooses which."""

    name = "project_files"
    refuses = (GridError,)
    words = (
        b"<config>",
        b"</config>",
        b"<uldl_dir_fanout>-1</uldl_dir_fanout>",
        b"&a;",
        b"<a>" * 2000,
        b"'",
        b'"',
        b"=",
    )

    def seeds(self) -> Sequence[bytes]:
        return [b"\0" + CONFIG.encode(), b"\1VCDL_STORE_URL='redis://h/0'\nexport A=b\n# comment\n"]

    def take(self, data: bytes) -> None:
        config, environment = self.folder / "config.xml", environment_file(self.folder)
        environment.parent.mkdir(exist_ok=True)
        config.write_bytes(data[1:] if data[:1] == b"\0" else CONFIG.encode())
        environment.write_bytes(data[1:] if data[:1] == b"\1" else b"")
        project = BoincProject.at(self.folder)
        hold(project.fanout >= 0, "a negative number of folders")
        project.download_path("name")
        for name, value in read_environment(self.folder).items():
            hold(isinstance(name, str) and isinstance(value, str), "no text")
