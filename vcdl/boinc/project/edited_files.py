"""The four XML files of a project that install edits.

For each, boinc_project/ contains a fragment of the same name that install merges into it.
"""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.project.merge import add, take_out
from vcdl.boinc.project.xml_document import XmlDocument
from vcdl.files.shipped import shipped_folder

MT_CLASS = "vcdl_mt"
CONTAINER_CLASS = "vcdl_docker"
"""The plan class of app versions in a container."""
SERVICE = "vcdl_service"
"""The launcher of the daemon that shows the jobs."""

EDITED = ("project.xml", "plan_class_spec.xml", "config_aux.xml", "config.xml")
"""The files in the order of writing: the programs that config.xml starts must exist before it."""


@dataclass(frozen=True)
class Fragment:
    """The XML that install merges into one file of a project."""

    name: str
    content: bytes

    @classmethod
    def load_shipped(cls, name: str, threads: int, service: str = "") -> "Fragment":
        """Load the fragment that comes with VCDL for a file, and fill in the operator's choices.

        Args:
            name: The file.
            threads: Threads of a task.
            service: The command of the daemon that serves the job pages; empty: no daemon.
        """
        file = shipped_folder("boinc_project") / name
        document = XmlDocument(file, file.read_bytes())
        for plan_class in document.root.iterfind("plan_class"):
            # BOINC's plan classes for several threads need at least two. With one thread, install offers no version of
            # that class.
            if (name := plan_class.findtext("name")) in (MT_CLASS, CONTAINER_CLASS):
                plan_class.find("max_threads").text = str(max(threads, 2) if name == MT_CLASS else threads)
        for daemons in document.root.iterfind("daemons") if service else ():
            daemon = deepcopy(daemons[0])
            daemon.find("cmd").text = service
            daemons.insert(0, daemon)
        return cls(name, document.content())

    def add_to(self, path: Path, content: bytes | None) -> bytes:
        """Return the file's content with the fragment; a missing file becomes the fragment.

        Raises:
            GridError: The content is not XML.
        """
        if content is None:
            return self.content
        document = XmlDocument(path, content)
        unedited = document.content()
        add(document.root, self._document.root)
        # Compare with the document as it is written back: parsing may normalise bytes outside our fragment, and without
        # an edit the file must stay as it is.
        edited = document.content()
        return content if edited == unedited else edited

    def remove_from(self, path: Path, content: bytes | None, before: bytes | None) -> bytes | None:
        """Return the file without the fragment, keeping later edits; None if nothing is left.

        Args:
            path: The file, for messages.
            content: Its content now.
            before: Its content before install; None if it did not exist.

        Raises:
            GridError: A content is not XML.
        """
        if content is None:
            return None
        document = XmlDocument(path, content)
        original = None if before is None else XmlDocument(path, before).root
        take_out(document.root, original, self._document.root)
        if before is None and not len(document.root):
            return None
        return document.content()

    @property
    def _document(self) -> XmlDocument:
        return XmlDocument(Path("boinc_project") / self.name, self.content)
