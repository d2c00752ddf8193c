"""The searchable text of a record, for the search index; pure."""

from steno.values import Record
from steno_present.messages import text_of, texts_of, written_at
from steno_search.filling import Texts


def searchable(record: Record) -> Texts:
    """Role, texts and time of a record."""
    value = record.record
    return Texts(text_of(value.get("role")), "\n".join(texts_of(value)), written_at(value))
