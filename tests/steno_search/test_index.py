"""The index: its results equal those of a naive search, whatever has happened to the sessions."""

import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steno.values import Record
from steno_protocol.errors import BadRequest, Incompatible
from steno_protocol.positions import Position
from steno_search import index as index_module
from steno_search.folder import IndexFolder
from steno_search.index import Damaged, Entry, Index, Indexed, Part, crc_of, marker
from steno_search.query import Filters
from steno_search.searchable import searchable

WORDS = ("alpha", "Alpha", "beta", "al", "naïve", "Naive", "会议", "会", "foo_bar", "foo", "x1")
ROLES = ("user", "assistant", "tool")
SESSIONS = ("team/a", "team/b", "other")

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
records = st.tuples(st.sampled_from(ROLES), texts)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a session: keep so many of its records, then append others; None deletes it."""

    session: str
    kept: int
    more: list[tuple[str, str]] | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of words, of which one may be a phrase and one a prefix."""

    words: list[str]
    phrase: list[str]
    prefix: str
    role: str | None
    session: str

    @property
    def typed(self) -> str:
        parts = list(self.words)
        if self.phrase:
            parts.append(f'"{" ".join(self.phrase)}"')
        if self.prefix:
            parts.append(f"{self.prefix}*")
        return " ".join(parts)


changes = st.lists(
    st.builds(
        Change,
        st.sampled_from(SESSIONS),
        st.integers(0, 4),
        st.one_of(st.none(), st.lists(records, max_size=5), st.lists(records, max_size=5)),
    ),
    min_size=1,
    max_size=12,
)
queries = st.builds(
    Asked,
    st.lists(st.sampled_from(WORDS), max_size=2),
    st.lists(st.sampled_from(WORDS), max_size=2),
    st.sampled_from(("", "alp", "nai", "foo", "会")),
    st.sampled_from((None, *ROLES)),
    st.sampled_from(("", "team/", "team/a", "nothing")),
).filter(lambda asked: bool(asked.typed))


@dataclass(slots=True)
class World:
    """The sessions as they are, beside an index that hears of each change."""

    index: Index
    sessions: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    clock: int = 1_760_000_000

    def apply(self, change: Change) -> None:
        if change.more is None:
            self.sessions.pop(change.session, None)
            self.index.forget([change.session])
            return
        lines = self.sessions.setdefault(change.session, [])
        kept = min(change.kept, len(lines))
        lines[kept:] = change.more
        self.clock += 1
        entries = [
            Entry(kept + number, None, crc_of(repr(text).encode()), role, self.clock, text)
            for number, (role, text) in enumerate(change.more)
        ]
        done = Indexed("one", 0, len(lines), 0, 0.0)
        self.index.add([Part(change.session, kept, entries, done)])

    def found(self, asked: Asked) -> set[tuple[str, int]]:
        filters = Filters(asked.role, asked.session)
        found = self.index.find(asked.typed, filters, "relevance", 0, 1000)
        assert found.count == len(found.places)
        return {(place.session, place.line) for place in found.places}

    def expected(self, asked: Asked) -> set[tuple[str, int]]:
        return {
            (session, line)
            for session, lines in self.sessions.items()
            for line, (role, text) in enumerate(lines)
            if session.startswith(asked.session)
            and asked.role in {None, role}
            and _matches(asked, _words(text))
        }


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFD", text.lower())
    return re.findall(r"[一-鿿]|[a-z0-9]+", re.sub(r"[\u0300-\u036f]", "", plain))


def _matches(asked: Asked, words: list[str]) -> bool:
    phrases = [_words(word) for word in asked.words] + ([_words(" ".join(asked.phrase))])
    has_phrases = all(
        not phrase or any(words[at : at + len(phrase)] == phrase for at in range(len(words)))
        for phrase in phrases
    )
    return has_phrases and (
        not asked.prefix or any(word.startswith(asked.prefix) for word in words)
    )


@contextmanager
def new_index() -> Iterator[Index]:
    with TemporaryDirectory() as folder, Index(Path(folder, "index.db"), creates=True) as index:
        yield index


def put(index: Index, session: str, *said: tuple[str, str, float]) -> None:
    """Put records, each with its role, text and time, into the index."""
    entries = [
        Entry(line, None, crc_of(repr(text).encode()), role, at, text)
        for line, (role, text, at) in enumerate(said)
    ]
    index.add([Part(session, 0, entries, Indexed("one", 0, len(said), 0, 0.0))])


@given(changes, st.lists(queries, min_size=1, max_size=4))
@settings(max_examples=40)
def test_results_equal_a_naive_search_after_appends_reverts_and_deletions(
    done: list[Change], asked: list[Asked]
) -> None:
    with new_index() as index:
        world = World(index)
        for change in done:
            world.apply(change)
        for each in asked:
            assert world.found(each) == world.expected(each)


@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=40)), min_size=20, max_size=40))
@settings(max_examples=15)
def test_no_typed_text_is_an_error_of_syntax(pairs: list[tuple[str, str]]) -> None:
    with new_index() as index:
        for typed, text in pairs:
            try:
                index.find(typed, Filters(role=typed, session=text), "time", 0, 10)
            except BadRequest:
                assert not any(map(str.isalnum, typed)) or "*" in typed
            else:
                with marker(typed) as marked, marker("x") as other:
                    assert "".join(marked(text)) == "".join(other(text))


@pytest.mark.parametrize(
    "typed",
    ['"a', "a OR b", "NEAR(a b)", "text: a", "a AND", "-a", "^a", "a + b", "{tags}: ruser",
     "'; DROP TABLE words; --", "a\0b", "*abc*", "abc**", "\ud800 a"],
)  # fmt: skip
def test_operators_of_fts5_are_words(typed: str) -> None:
    with new_index() as index:
        put(index, "s", ("user", typed, 1.0))
        found = index.find(typed, Filters(), "relevance", 0, 10)
        assert [place.line for place in found.places] == [0]


@pytest.mark.parametrize("typed", ["", "  ", "++", '""', "*", '"**"*', "¿?"])
def test_a_query_without_a_word_is_refused(typed: str) -> None:
    with new_index() as index, pytest.raises(BadRequest, match="no word"):
        index.find(typed, Filters(), "relevance", 0, 10)


def test_too_short_a_prefix_too_many_words_and_too_long_a_query_are_refused() -> None:
    with new_index() as index:
        for typed, reason in (
            ("ab*", "three letters"),
            ("a " * 33, "32 words"),
            ("a" * 1001, "1000"),
        ):
            with pytest.raises(BadRequest, match=reason):
                index.find(typed, Filters(), "relevance", 0, 10)


def test_filters_of_time_take_what_is_inside() -> None:
    with new_index() as index:
        put(index, "s", *(("user", "alpha", 1_700_000_000.0 + day * 86_400) for day in range(5)))
        span = Filters(since=1_700_000_000.0 + 86_400, until=1_700_000_000.0 + 3 * 86_400)
        found = index.find("alpha", span, "time", 0, 10)
        assert [place.line for place in found.places] == [2, 1]


@pytest.mark.parametrize("at", [-5.0, 0.0, 2.0**60, float("inf"), float("nan")])
def test_a_time_that_nobody_lives_in_is_indexed(at: float) -> None:
    with new_index() as index:
        put(index, "s", ("user", "alpha", at))
        assert index.find("alpha", Filters(), "time", 0, 10).count == 1


def test_results_are_ordered_by_relevance_or_time_and_come_in_pages() -> None:
    with new_index() as index:
        put(index, "s", ("user", "alpha", 1.0), ("user", "alpha " * 3, 2.0),
            ("user", "alpha " + "beta " * 90, 3.0))  # fmt: skip
        best = index.find("alpha", Filters(), "relevance", 0, 10)
        assert [place.line for place in best.places] == [1, 0, 2]
        pages = [index.find("alpha", Filters(), "time", at, 1).places[0].line for at in range(3)]
        assert pages == [2, 1, 0]


def test_more_records_than_can_be_ranked_come_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "RANKED_MAX", 2)
    with new_index() as index:
        put(index, "s", *(("user", "alpha " * (4 - n), float(n)) for n in range(4)))
        found = index.find("alpha", Filters(), "relevance", 0, 10)
        assert not found.is_ranked
        assert [place.line for place in found.places] == [3, 2, 1, 0]


def test_a_query_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "QUERY_TIMEOUT_S", -1.0)
    monkeypatch.setattr(index_module, "_STEPS", 1)
    with new_index() as index:
        put(index, "s", ("user", "alpha", 1.0))
        with pytest.raises(BadRequest, match="took longer"):
            index.find("alpha", Filters(), "time", 0, 10)


def test_many_sessions_of_a_filter_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "SESSIONS_BY_WORD_MAX", 1)
    with new_index() as index:
        for session in SESSIONS:
            put(index, session, ("user", "alpha", 1.0))
        found = index.find("alpha", Filters(session="team/"), "time", 0, 10)
        assert {place.session for place in found.places} == {"team/a", "team/b"}


def test_most_rows_without_a_record_wear_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "UNUSED_RECORDS_MIN", 3)
    with new_index() as index:
        for _ in range(4):
            put(index, "s", ("user", "alpha", 1.0))
        assert not index.is_worn
        put(index, "s", ("user", "alpha", 1.0))
        assert index.is_worn


def test_a_failed_transaction_leaves_nothing() -> None:
    def failing() -> Iterator[Part]:
        yield Part("s", 0, [Entry(0, 0, 1, "user", 1.0, "alpha")], Indexed("one", 0, 1, 0, 0.0))
        raise KeyError

    with new_index() as index:
        with pytest.raises(KeyError):
            index.add(failing())
        assert index.sessions() == {}
        assert index.find("alpha", Filters(), "time", 0, 10).count == 0


# --- the folder -----------------------------------------------------------------------------------


def _damage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 300)


def _foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE words(x)")
    base.close()


def _half_written(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:9000])


def _older(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version = 0")
    base.close()


@pytest.mark.parametrize("spoil", [_damage, _foreign, _half_written, _older])
def test_an_index_that_is_no_index_is_made_anew(tmp_path: Path, spoil: object) -> None:
    folder = IndexFolder(tmp_path, "root")
    with folder.filling() as filling:
        assert filling is not None
        put(filling.index, "s", ("user", "alpha", 1.0))
    (path,) = folder.path.glob("index-*.db")
    assert callable(spoil)
    spoil(path)
    assert folder.open() is None
    with folder.filling() as filling:
        assert filling is not None
        assert filling.index.sessions() == {}
        put(filling.index, "s", ("user", "beta", 1.0))
    found = folder.open()
    assert found is not None
    with found:
        assert found.find("beta", Filters(), "time", 0, 10).count == 1
    assert [file.name for file in folder.path.glob("index-*")] == ["index-2-2.db"]


def test_one_process_fills_and_others_search(tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path, "root")
    waits: list[None] = []
    with folder.filling() as filling:
        assert filling is not None
        put(filling.index, "s", ("user", "alpha", 1.0))
        with IndexFolder(tmp_path, "root").filling(0.05, lambda: waits.append(None)) as second:
            assert second is None
        reader = folder.open()
        assert reader is not None
        with reader:
            assert reader.find("alpha", Filters(), "time", 0, 10).count == 1
    assert waits


def test_the_index_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path / "cache", "root")
    with folder.filling() as filling:
        assert filling is not None
        put(filling.index, "s", ("user", "alpha", 1.0))
        files = list(folder.path.iterdir())
        assert {f"{file.stat().st_mode & 0o777:o}" for file in files} == {"600"}
        assert any(file.name.endswith("-wal") for file in files)
    assert f"{folder.path.stat().st_mode & 0o777:o}" == "700"


def test_a_python_without_fts5_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tables = tuple(each.replace("fts5(", "fts5missing(") for each in index_module._TABLES)
    monkeypatch.setattr(index_module, "_TABLES", tables)
    with pytest.raises(Incompatible, match="FTS5"):
        Index(tmp_path / "index.db", creates=True)


def test_a_damaged_page_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with Index(path, creates=True) as index:
        for number in range(200):
            put(index, f"s{number}", *((("user", f"alpha{number} beta", 1.0)),) * 20)
    data = bytearray(path.read_bytes())
    data[8192:-4096] = b"\xff" * (len(data) - 12288)
    path.write_bytes(data)
    with pytest.raises(Damaged), Index(path) as index:
        index.find("beta", Filters(), "time", 0, 10)


def test_a_coloured_word_is_found_without_its_colour() -> None:
    value = {"role": "tool", "content": "1 \x1b[32mpassed\x1b[0m"}
    record = Record(Position(0, 0), value, b"")
    assert searchable(record).text == "1 passed"
