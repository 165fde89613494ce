"""An app version's description for the client, from its folder and version.xml; its files signed and put into
download/.
"""

import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.boinc.standin.config import ProjectConfig
from tests.boinc.standin.signing import SigningKey


def app_version_xml(folder: Path, app: str, number: int, config: ProjectConfig, key: SigningKey) -> str:
    """`folder` holds version.xml and the files it names; they are staged on the top level of download/."""
    root = ElementTree.parse(folder / "version.xml").getroot()
    infos = references = ""
    for file in root.iter("file"):
        name = (file.findtext("physical_name") or "").strip()
        content = (folder / name).read_bytes()
        staged = Path(config.settings["download_dir"]) / name
        assert not staged.exists() or staged.read_bytes() == content, f"{name} changed: BOINC's files are immutable"
        shutil.copyfile(folder / name, staged)
        program = file.find("main_program") is not None
        runs = program or bool((folder / name).stat().st_mode & 0o100)
        infos += (
            f"<file_info>\n    <name>{name}</name>\n    <url>{config.settings['download_url']}/{name}</url>\n"
            + ("    <executable/>\n" if runs else "")
            + f"    <file_signature>\n{key.sign(content)}    </file_signature>\n"
            + f"    <nbytes>{len(content)}</nbytes>\n</file_info>\n"
        )
        logical = (file.findtext("logical_name") or "").strip()
        references += (
            f"<file_ref>\n    <file_name>{name}</file_name>\n"
            + (f"    <open_name>{logical}</open_name>\n" if logical else "")
            + ("    <copy_file/>\n" if file.find("copy_file") is not None else "")
            + ("    <main_program/>\n" if program else "")
            + "</file_ref>\n"
        )
    api = (root.findtext("api_version") or "").strip()
    return (
        f"{infos}<app_version>\n    <app_name>{app}</app_name>\n    <version_num>{number}</version_num>\n"
        + (f"    <api_version>{api}</api_version>\n" if api else "")
        + "".join(f"    <{flag}/>\n" for flag in ("dont_throttle", "needs_network") if root.find(flag) is not None)
        + f"{references}</app_version>\n"
    )
