"""The search index: how fast it is filled, its size and memory, and how long a query takes."""

import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

import steno
from bench.measuring import Comparison, percentile
from steno._sync.client import BlockingClient
from steno_search.filling import Pass, fill
from steno_search.folder import IndexFolder
from steno_search.hits import Search, Searcher
from steno_search.index import Index
from steno_search.query import Filters, Order
from steno_search.searchable import searchable
from support.foreground import ForegroundDaemon

MEGABYTES: Final = int(os.environ.get("STENO_BENCH_SEARCH_MB", "300"))
"""Transcripts that are searched; `STENO_BENCH_SEARCH_MB` sets another amount."""

SESSION_BYTES: Final = 2_000_000
WORDS: Final = 60_000
QUERIES: Final = 40
"""Queries of each kind in a round, each with words of its own."""

BEGINNING_MS: Final = 1_760_000_000_000
ALL: Final = Filters()

_encode = msgspec.json.Encoder().encode


class Corpus:
    """Transcripts as agents write them: prose, code, paths, calls and their results.

    The frequency of words follows Zipf's law, as that of a language does. Each session has some
    words that only it has.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        syllables = [f"{one}{two}" for one in "bcdfghjklmnprstvwz" for two in "aeiou"]
        self.words = list(
            dict.fromkeys(
                "".join(self._random.choices(syllables, k=self._random.choice((1, 2, 2, 3, 3, 4))))
                for _ in range(3 * WORDS)
            )
        )[:WORDS]
        weights, total = list[float](), 0.0
        for rank in range(1, len(self.words) + 1):
            total += 1 / (rank + 2.7)
            weights.append(total)
        self._weights = weights
        self._at_ms = BEGINNING_MS

    def session(self, number: int) -> bytes:
        """The lines of one session."""
        lines: list[bytes] = []
        size = 0
        self._at_ms = BEGINNING_MS + number * 3_600_000
        while size < SESSION_BYTES:
            for message in self._turn(number, len(lines)):
                self._at_ms += self._random.randrange(200, 20_000)
                key = UUID(int=self._at_ms << 80 | 0x7 << 76 | self._random.getrandbits(60))
                lines.append(_encode({**message, "_id": str(key), "_by": "agent"}) + b"\n")
                size += len(lines[-1])
        return b"".join(lines)

    def _turn(self, session: int, line: int) -> Iterator[dict[str, object]]:
        yield {"role": "user", "content": self._prose(40)}
        for step in range(self._random.randrange(1, 6)):
            call = f"call_{session}_{line}_{step}"
            arguments = _encode({"command": f"grep -rn {self._identifier()} {self._path()}"})
            yield {
                "role": "assistant",
                "content": [
                    {"type": "think", "think": self._prose(60)},
                    {"type": "text", "text": self._prose(25)},
                ],
                "tool_calls": [{"type": "function", "id": call, "function": {
                    "name": "Shell", "arguments": arguments.decode()}}],
            }  # fmt: skip
            text = self._code() if step % 2 else self._log(session)
            yield {
                "role": "tool", "tool_call_id": call, "content": [{"type": "text", "text": text}],
            }  # fmt: skip
        yield {"role": "assistant", "content": self._prose(120)}

    def pick(self, count: int) -> list[str]:
        """Words by their frequency."""
        return self._random.choices(self.words, cum_weights=self._weights, k=count)

    def _prose(self, count: int) -> str:
        return " ".join(self.pick(self._random.randrange(count // 2, 2 * count))).capitalize() + "."

    def _identifier(self) -> str:
        return "_".join(self.pick(2))

    def _path(self) -> str:
        return "/".join(self.pick(3)) + ".py"

    def _code(self) -> str:
        rows = self._random.randrange(10, 80)
        words = iter(self.pick(5 * rows))
        return "\n".join(
            f"    def {next(words)}_{next(words)}(self, {next(words)}: int) -> {next(words)}:"
            f"  # {next(words)} {number}"
            for number in range(rows)
        )

    def _log(self, session: int) -> str:
        rows = self._random.randrange(5, 60)
        words = iter(self.pick(4 * rows))
        return "\n".join(
            f"2026-11-{1 + number % 28:02d} {self._random.getrandbits(48):012x} s{session}"
            f" {next(words)}: {next(words)} {next(words)} {next(words)}"
            for number in range(rows)
        )


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """The filling of the index, and queries of several kinds with their results read."""
    corpus = Corpus(27)
    root = folder / "search-root"
    written = _write(corpus, root, report)
    with ForegroundDaemon(root), steno.connect_sync(root, spawn=False) as client:
        filled = _filled(client, folder, written, rounds, report)
        index = IndexFolder(folder / "search-cache", "bench")
        return [filled, _queried(client, index, corpus, rounds, report)]


def _write(corpus: Corpus, root: Path, report: Callable[[str], None]) -> int:
    written = number = 0
    while written < MEGABYTES * 1_000_000:
        place = root / "sessions" / f"team-{number % 7}" / f"run-{number:04d}"
        place.mkdir(parents=True)
        data = corpus.session(number)
        (place / "context.jsonl").write_bytes(data)
        written += len(data)
        number += 1
    report(f"search: {number} sessions, {written / 1e6:.0f} MB")
    return written


def _filled(
    client: BlockingClient,
    folder: Path,
    written: int,
    rounds: int,
    report: Callable[[str], None],
) -> Comparison:
    """Fill an index in a process of its own, whose memory is its own, too."""
    title = f"the search index of {written / 1e6:.0f} MB"
    measures = (
        "s_per_100_mb",
        "cpu_s_per_100_mb",
        "index_mb_per_100_mb",
        "most_memory_mb",
        "no_change_ms",
    )
    comparison = Comparison(title, measures, "s_per_100_mb", ("empty index",))
    for number in range(rounds):
        place = IndexFolder(folder / "search-cache", "bench" if number == 0 else f"round {number}")
        values = _fill_in_child(client.welcome.root, place)
        hundreds = written / 1e8
        size = sum(file.stat().st_size for file in place.path.iterdir()) / 1e6
        comparison.add("empty index", {
            "s_per_100_mb": values["fill_s"] / hundreds,
                "cpu_s_per_100_mb": values["cpu_s"] / hundreds,
            "index_mb_per_100_mb": size / hundreds,
            "most_memory_mb": values["most_memory_mb"],
            "no_change_ms": values["again_s"] * 1e3,
        })  # fmt: skip
        report(f"{title}: round {number + 1}")
    return comparison


def _fill_in_child(root: str, place: IndexFolder) -> dict[str, float]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with steno.connect_sync(root, spawn=False) as client:
                took = [_timed_fill(client, place) for _ in range(2)]
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu_s = used.ru_utime + used.ru_stime
            os.write(writer, _encode([*took, cpu_s, used.ru_maxrss / 1e3]))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the index was not filled"
    fill_s, again_s, cpu_s, most = msgspec.json.decode(data)
    return {"fill_s": fill_s, "cpu_s": cpu_s, "again_s": again_s, "most_memory_mb": most}


def _timed_fill(client: BlockingClient, place: IndexFolder) -> float:
    began_s = time.monotonic()
    with place.filling() as filling:
        assert filling is not None
        fill(client, filling, searchable, Pass())
    return time.monotonic() - began_s


def _queried(
    client: BlockingClient,
    folder: IndexFolder,
    corpus: Corpus,
    rounds: int,
    report: Callable[[str], None],
) -> Comparison:
    kinds = _kinds(corpus)
    title = f"queries over {MEGABYTES} MB, 20 results read from their sessions"
    measures = (
        "p50_ms",
        "p99_ms",
        "index_p50_ms",
        "index_p99_ms",
        "cpu_p50_ms",
        "cpu_p99_ms",
        "results",
    )
    comparison = Comparison(title, measures, "p50_ms", tuple(kinds)[:1])
    searcher = Searcher(client, searchable)
    for number in range(rounds):
        for name, searches in kinds.items():
            took, index_took = list[float](), list[float]()
            cpu, results = list[float](), list[float]()
            for search in searches:
                began_s = time.monotonic()
                with _opened(folder) as index:
                    index.find(search.typed, search.filters, search.order, 0, 20)
                    index_took.append((time.monotonic() - began_s) * 1e3)
                began_s, began_cpu_s = time.monotonic(), time.process_time()
                with _opened(folder) as index:
                    page = searcher.page(index, search, 0, 20)
                took.append((time.monotonic() - began_s) * 1e3)
                cpu.append((time.process_time() - began_cpu_s) * 1e3)
                results.append(page.count)
            comparison.add(name, {
                "p50_ms": percentile(sorted(took), 0.5),
                "p99_ms": percentile(sorted(took), 0.99),
                "index_p50_ms": percentile(sorted(index_took), 0.5),
                "index_p99_ms": percentile(sorted(index_took), 0.99),
                "cpu_p50_ms": percentile(sorted(cpu), 0.5),
                "cpu_p99_ms": percentile(sorted(cpu), 0.99),
                "results": statistics.median(results),
            })  # fmt: skip
        report(f"{title}: round {number + 1}")
    return comparison


def _opened(folder: IndexFolder) -> Index:
    index = folder.open()
    assert index is not None
    return index


def _kinds(corpus: Corpus) -> dict[str, list[Search]]:
    """Queries of each kind; words are picked by their frequency, as people pick them."""
    chosen = random.Random(5)
    common = corpus.words[:20]
    rare = [word for word in corpus.words[2000:] if len(word) > 4]
    a_day = BEGINNING_MS / 1e3 + 86_400

    def many(make: Callable[[], str], filters: Filters = ALL, order: Order = "relevance"):
        return [Search(make(), filters, order) for _ in range(QUERIES)]

    def two() -> str:
        return f"{chosen.choice(rare)} {chosen.choice(common)}"

    return {
        "a rare word": many(lambda: chosen.choice(rare)),
        "a common word": many(lambda: chosen.choice(common)),
        "two common words": many(lambda: " ".join(chosen.sample(common, 2))),
        "rare and common": many(two),
        "a phrase": many(lambda: f'"{" ".join(chosen.sample(common, 2))}"'),
        "an identifier": many(lambda: "_".join(corpus.pick(2))),
        "a prefix of 3": many(lambda: f"{chosen.choice(rare)[:3]}*"),
        "a prefix of 5": many(lambda: f"{chosen.choice(rare)[:5]}*"),
        "newest first": many(lambda: chosen.choice(common), order="time"),
        "of one role": many(two, Filters(role="user")),
        "of one session": many(two, Filters(session="team-1/run-0001")),
        "of many sessions": many(two, Filters(session="team-1/")),
        "of one day": many(two, Filters(since=a_day, until=a_day + 86_400)),
    }
