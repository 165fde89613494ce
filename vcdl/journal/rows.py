"""Encode the fields of an event as the text of its row in the journal, and decode them."""

import json

import msgspec

from vcdl.errors import JournalError
from vcdl.journal.events import KINDS, Event

_DECODERS = {kind: msgspec.json.Decoder(event) for kind, event in KINDS.items()}


def encode(event: Event) -> str:
    """Return an event's fields as JSON text."""
    return json.dumps(msgspec.structs.asdict(event))


def decode(kind: str, fields: str) -> Event:
    """Decode an event of a kind from its fields.

    Raises:
        ValueError: The text is not JSON.
        JournalError: This version of vcdl does not know the kind or a field, or a value has the wrong type.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise _unknown(kind, "its kind")
    try:
        # Only an escape can hide a lone surrogate, and few rows have any.
        if "\\u" in fields:
            _check_text(kind, fields)
        try:
            return decoder.decode(fields)
        except msgspec.DecodeError:
            # msgspec is strict JSON. Python writes NaN and infinities, which a diverged loss has, so its own decoder
            # reads them.
            return _decode_as_json(kind, fields)
    except RecursionError as error:
        raise _damaged_error(kind, "they are nested too deeply") from error


def _check_text(kind: str, fields: str) -> None:
    """Refuse a lone surrogate (half of a pair of escapes), because it could be neither printed nor packed later."""
    try:
        json.dumps(json.loads(fields), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise _damaged_error(kind, error) from error


def _decode_as_json(kind: str, fields: str) -> Event:
    """Decode fields that msgspec refuses because they are damaged, or contain NaN or infinities.

    Raises:
        ValueError: The text is not JSON.
        JournalError: The fields are not those of this kind of event.
    """
    raw, event = json.loads(fields), KINDS[kind]
    if not isinstance(raw, dict):
        raise _damaged_error(kind, "they are not a JSON object")
    names = {field.name: field.required for field in msgspec.structs.fields(event)}
    for name in raw:
        if name not in names:
            raise _unknown(kind, f"its field {name[:60]!r}")
    for name, required in names.items():
        if required and name not in raw:
            raise _unknown(kind, f"it lacks {name!r}")
    try:
        return msgspec.convert(raw, event)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise _damaged_error(kind, error) from error


def _unknown(kind: str, why: str) -> JournalError:
    """Return the error for an event of another version of vcdl."""
    return JournalError(
        f"the journal holds an event {kind[:60]!r} that this version does not know ({why}): "
        "continue with the version of vcdl that started the run"
    )


def _damaged_error(kind: str, why: object) -> JournalError:
    """Return the error for an event with damaged fields."""
    return JournalError(
        f"the journal is damaged: the fields of an event {kind!r}: {str(why)[:200]}; restore a copy of the journal"
    )
