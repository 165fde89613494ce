"""An XML file is edited without touching what was not edited."""

from pathlib import Path

import pytest
from lxml import etree

from tests.boinc.project.made_project import CONFIG_XML
from vcdl.boinc.project.xml_document import XmlDocument, append, remove
from vcdl.errors import GridError

ODD = b"""<?xml version='1.0'   encoding="UTF-8"?>
<!-- before --><!DOCTYPE boinc>

<boinc><a/><b></b><c >\t text\xc3\xa4 </c><![CDATA[<raw>]]><!-- <config> --><d>
</d></boinc
><!-- after -->

"""


def test_empty_elements_comments_and_what_surrounds_the_root_are_kept() -> None:
    written = XmlDocument(Path("f.xml"), ODD).content()
    head, _, rest = ODD.partition(b"<boinc>")
    assert written.startswith(head)
    assert written.endswith(b"<!-- after -->\n\n")
    assert b"<a/><b></b>" in rest
    assert b"<a/><b></b>" in written
    assert b"<![CDATA[<raw>]]><!-- <config> -->" in written


def test_what_is_appended_and_removed_again_leaves_no_trace() -> None:
    document = XmlDocument(Path("f.xml"), CONFIG_XML.encode())
    daemons = document.root.find("daemons")
    child = etree.fromstring("<daemon><cmd>new</cmd></daemon>")
    append(daemons, child)
    assert b"        <daemon>\n            <cmd>new</cmd>\n        </daemon>\n    </daemons>" in document.content()
    remove(child)
    assert document.content() == CONFIG_XML.encode()


@pytest.mark.parametrize("content", [b"", b"<a><b></a>", b"no xml", b"<a/><a/>", b"\xff\xfe<"])
def test_what_is_no_xml_is_refused_with_its_name(content: bytes) -> None:
    with pytest.raises(GridError, match=r"config\.xml is not well-formed"):
        XmlDocument(Path("config.xml"), content)
