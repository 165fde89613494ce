"""A client takes a statement of the newest weights only as the project has signed it."""

import json
from dataclasses import replace

import pytest

from tests.weights_key import KEY, OTHER_KEY
from vcdl.errors import WorkunitError
from vcdl.wire.newest import Newest, PublicKey, append_signature, read_signed

NEWEST = Newest("digits", "0123456789abcdef", 17, "http://example.org/download/3f/vcdl_a.h5", 1000, "ab" * 32)


def test_what_the_project_has_signed_is_read_with_the_key_that_it_published() -> None:
    key = PublicKey.from_json(KEY.public.to_json())
    assert read_signed(KEY.sign(NEWEST.to_json()).encode(), key) == NEWEST


@pytest.mark.parametrize(
    "content",
    [
        OTHER_KEY.sign(NEWEST.to_json()),
        KEY.sign(NEWEST.to_json()).replace("17", "18"),
        append_signature(NEWEST.to_json(), b""),
        append_signature(NEWEST.to_json(), bytes(384)),
        append_signature(NEWEST.to_json(), b"\0" * 383 + b"\1"),
        append_signature(NEWEST.to_json(), b"\xff" * 384),
        append_signature(NEWEST.to_json(), bytes(10_000)),
        KEY.sign(replace(NEWEST, url="file:///etc/passwd").to_json()),
        KEY.sign(replace(NEWEST, sha256="ab").to_json()),
        KEY.sign(replace(NEWEST, version=-1).to_json()),
        KEY.sign(NEWEST.to_json().replace("17", "true")),
        KEY.sign(NEWEST.to_json().replace("17", '"17"')),
        KEY.sign('{"job": "digits"}'),
        KEY.sign("[" * 100_000),
        json.dumps({"statement": 17, "signature": ""}),
        json.dumps({"statement": NEWEST.to_json(), "signature": "rubbish"}),
        json.dumps([]),
        "rubbish",
        "",
    ],
)
def test_anything_else_is_refused(content: str) -> None:
    with pytest.raises(WorkunitError, match="newest weights"):
        read_signed(content.encode(errors="surrogateescape"), KEY.public)


def test_a_signature_of_something_else_is_none_for_weights() -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    bare = KEY._private.sign(NEWEST.to_json().encode(), padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(WorkunitError, match="not signed"):
        read_signed(append_signature(NEWEST.to_json(), bare).encode(), KEY.public)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"modulus": 17}', '{"modulus": "rubbish"}', '{"modulus": "ffff"}'])
def test_a_key_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(WorkunitError, match="key for weights"):
        PublicKey.from_json(text)
