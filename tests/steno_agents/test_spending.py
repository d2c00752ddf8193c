"""Tokens of sessions: what the programs count, copies and parts that count once, and prices."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from steno_agents.detection import FORMATS
from steno_agents.limits import RECENT_REQUESTS
from steno_agents.prices import Cost, Prices, prices_in
from steno_agents.spending import Account, Cell, Counted, OwnRecords, Seen, day_of
from steno_agents.traces import Tokens
from steno_agents.usage_table import BYS, UsageRow, tokens_of_day, usage_table
from steno_protocol.errors import BadRequest
from support.agent_files import AT, claude_answer, codex_line, codex_tokens

RECORDED = Path(__file__).with_name("recorded")
READERS: dict[str, type[Counted]] = {each.stream: each for each in FORMATS}
CLAUDE, CODEX = READERS["claude-code"], READERS["codex"]
ONE = Tokens(input=5, cache_read=90, cache_write=10, output=15)
DAY = "2026-11-21"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def account(kind: type[Counted], records: Iterable[object], seen: Seen | None = None) -> Account:
    found = Account(kind, seen or Seen())
    for record in records:
        found.add(json.dumps(record).encode() + b"\n")
    return found


def spent(found: Account) -> Tokens:
    whole = Tokens()
    for each in found.sums.values():
        whole = whole.plus(each.tokens)
    return whole


@pytest.mark.parametrize(
    ("program", "tokens", "model"),
    [
        ("copilot-cli", Tokens(input=7315, output=140), "small-model"),
        ("gemini-cli", Tokens(input=7103, output=140), "gemini-3.8-flash"),
        ("kimi-code", Tokens(input=7210, output=140), "local"),
        ("opencode", Tokens(input=7063, output=140), "small-model"),
        ("pi", Tokens(input=7161, output=140), "small-model"),
        ("qwen-code", Tokens(input=7034, output=140), "small-model"),
    ],
)
def test_recorded_transcripts_count_as_their_programs_did(
    program: str, tokens: Tokens, model: str
) -> None:
    found = Account(READERS[program], Seen())
    for line in (RECORDED / f"{program}.jsonl").read_bytes().splitlines():
        found.add(line)
    assert {cell.model for cell in found.sums} == {model}
    assert all(cell.day is not None for cell in found.sums)
    assert sum(each.requests for each in found.sums.values()) == 7
    assert spent(found) == tokens


def test_the_parts_of_an_answer_count_once_and_the_last_one_is_valid() -> None:
    first = claude_answer("1", "0", "a")
    last = claude_answer("1", "0", "b")
    last["message"]["usage"] = {**last["message"]["usage"], "output_tokens": 40}
    found = account(CLAUDE, [first, first, last])
    assert found.sums[Cell(DAY, "claude-test-1")] == (1, ONE._replace(output=40))


def test_copilot_counts_the_tokens_of_caches_as_input_too() -> None:
    usage = {"inputTokens": 1672, "outputTokens": 20, "model": "small-model",
             "cacheReadTokens": 600, "cacheWriteTokens": 70}  # fmt: skip
    record = {"type": "session.usage_record", "id": "1", "data": {"usage": usage}}
    answer = {**record, "type": "assistant.message", "id": "2"}
    found = account(READERS["copilot-cli"], [record, answer, record])
    tokens = Tokens(input=1002, cache_read=600, cache_write=70, output=20)
    assert found.sums == {Cell(None, "small-model"): (1, tokens)}


def test_codex_repeats_a_count_when_only_its_limits_change() -> None:
    turn = codex_line("turn_context", {"model": "codex-test-1"})
    found = account(CODEX, [turn, codex_tokens(120), codex_tokens(120), codex_tokens(240)])
    tokens = Tokens(input=120, cache_read=80, output=40)
    assert found.sums == {Cell(DAY, "codex-test-1"): (2, tokens)}
    other = account(CODEX, [turn, codex_tokens(120)], found._seen)
    assert spent(other).total == 120, "the sum of another session means another request"


def test_a_copy_of_a_request_in_another_session_counts_nothing() -> None:
    seen = Seen()
    first = account(CLAUDE, [claude_answer("1", "0", "a")], seen)
    fork = account(CLAUDE, [claude_answer("1", "0", "a"), claude_answer("2", "1", "b")], seen)
    assert (spent(first), spent(fork)) == (ONE, ONE)


def test_a_request_that_comes_again_much_later_counts_once() -> None:
    many = [claude_answer(str(each), "0", "a") for each in range(RECENT_REQUESTS + 3)]
    assert spent(account(CLAUDE, [*many, *many])).output == 15 * len(many)


def test_a_rewritten_file_is_counted_anew() -> None:
    found = account(CLAUDE, [claude_answer("1", "0", "a"), claude_answer("2", "1", "b")])
    found.restart()
    assert not found.sums
    found.add(json.dumps(claude_answer("1", "0", "a")).encode())
    found.add(json.dumps(claude_answer("1", "0", "a")).encode())
    assert spent(found) == ONE


def test_the_counts_of_steno_are_sums_and_past_ones_without_an_id_count_nothing() -> None:
    key = "019ab0e4-9c00-7000-8000-000000000000"
    found = Account(OwnRecords, Seen())
    for line in (
        f'{{"role":"_usage","token_count":70,"_id":"{key}"}}',
        '{"role":"user","content":"\\"_usage\\" and no count"}',
        f'{{"role":"_usage","token_count":70,"_id":"{key}"}}',
        '{"role":"_usage","token_count":7}',
        '{"role":"_usage","token_count":-5}',
        '{"role":"_usage","token_count":"many"}',
        "[5]",
    ):
        found.add(line.encode())
    found.add(b'{"role":"_usage","token_count":9}', is_past=True)
    assert spent(found) == Tokens(unsplit=77)
    assert {cell.model for cell in found.sums} == {None}


@pytest.mark.parametrize("at", [None, 1e300, -1e300])
def test_what_is_beyond_the_calendar_has_no_day(at: float | None) -> None:
    assert day_of(at) is None


PRICED = """
currency = "USD"
[models."claude-*"]
input = 1
output = 10
[models."claude-test-*"]
input = 3.0
cache_read = 0.3
cache_write = 3.75
output = 15
[models.exact]
input = 2
"""


def test_the_longest_beginning_names_the_price_and_none_is_guessed() -> None:
    prices = prices_in(PRICED, "x")
    million = Tokens(1_000_000, 1_000_000, 1_000_000, 1_000_000)
    assert prices.cost("claude-test-1", million) == (3.0 + 0.3 + 3.75 + 15, 0)
    assert prices.cost("claude-other", million) == (11.0, 2_000_000)
    assert prices.cost("exact", million) == (2.0, 3_000_000)
    assert prices.cost("exactly", million) == (None, 4_000_000)
    assert prices.cost(None, million) == (None, 4_000_000)
    assert prices.cost("exact", Tokens(unsplit=5)) == (None, 5)
    assert Cost(1.0, 2).plus(Cost(None, 3)) == (1.0, 5)


@pytest.mark.parametrize(
    "text",
    [
        "x", "[models]\na = 5", "currency = 5", "models = 5", "other = 1",
        "[models.a]\ninput = -1", "[models.a]\ninput = nan", "[models.a]\ninput = true",
        "[models.a]\ninput = '1'", "[models.a]\nimput = 1",
    ],
)  # fmt: skip
def test_what_is_no_list_of_prices_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(BadRequest, match=r"/x/prices\.toml"):
        prices_in(text, "/x/prices.toml")


def test_sums_are_made_by_what_was_asked() -> None:
    seen = Seen()
    later: dict[str, Any] = {"timestamp": "2026-11-22T10:00:00Z"}
    accounts = {
        "a": account(CLAUDE, [claude_answer("1", "0", "x"), claude_answer("2", "1", "y", **later)],
                     seen),
        "b": account(CODEX, [codex_line("turn_context", {"model": "m"}), codex_tokens(1)], seen),
    }  # fmt: skip
    prices = prices_in(PRICED, "x")
    days = usage_table(accounts, ["day"], prices)
    assert [(row.day, row.requests, row.tokens) for row in days.rows] == [
        ("2026-11-22", 1, 120), (DAY, 2, 240),
    ]  # fmt: skip
    assert days.total.tokens == 360
    assert days.total.unpriced == 120
    assert days.currency == "USD"
    programs = usage_table(accounts, ["program"], prices, since="2026-11-22").rows
    assert [(row.program, row.tokens) for row in programs] == [("claude-code", 120)]
    each = usage_table(accounts, BYS, prices).rows
    assert [(row.session, row.program, row.model) for row in each] == [
        ("a", "claude-code", "claude-test-1"), ("a", "claude-code", "claude-test-1"),
        ("b", "codex", "m"),
    ]  # fmt: skip
    assert usage_table({}, ["model"], Prices({})).total == UsageRow()
    tokens, cost = tokens_of_day(accounts.values(), DAY, prices)
    assert tokens == 240
    assert cost == pytest.approx((5 * 3 + 90 * 0.3 + 10 * 3.75 + 15 * 15) / 1e6)


def test_the_times_of_the_fixtures_are_of_one_day() -> None:
    assert AT.startswith(DAY)
