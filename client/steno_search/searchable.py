"""The searchable text of a record, for the search index; pure."""

from steno.values import Record
from steno_present.messages import text_of, texts_of, written_at
from steno_present.safe_text import without_ansi
from steno_search.filling import Texts


def searchable(record: Record) -> Texts:
    """Role, texts and time of a record; a colour's code is no part of the word behind it."""
    value = record.record
    text = without_ansi("\n".join(texts_of(value)))
    return Texts(text_of(value.get("role")), text, written_at(value))
