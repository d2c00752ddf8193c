"""Masks: what they hide, what they leave, and what stays true of JSON."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.errors import BadRequest
from steno_redact import named
from steno_redact.limits import MATCHES_MIN, SCAN_CHARS_MAX
from steno_redact.patterns import BUILT_IN, DEFAULT, Own, Patterns, patterns_of
from steno_redact.redactor import Redactor
from steno_redact.vendors import HINTED, ROWS

from .kinds import KINDS

A36 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
BLOCK = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n"
SECRETS = {
    "private-key": f"{BLOCK}AAAA\n-----END OPENSSH PRIVATE KEY-----",
    "anthropic-key": f"sk-ant-api03-{A36}",
    "openai-key": f"sk-proj-{A36}",
    "google-key": f"AIza{A36[:35]}",
    "github-token": f"ghp_{A36}",
    "gitlab-token": f"glpat-{A36[:20]}",
    "huggingface-token": f"hf_{A36}",
    "slack-token": "xoxb-123456789012-abcdefghij",
    "stripe-key": f"sk_live_{A36[:24]}",
    "npm-token": f"npm_{A36}",
    "pypi-token": f"pypi-AgEIcHlwaS5vcmc{A36}{A36}",
    "aws-key-id": "AKIAIOSFODNN7EXAMPLE",
    "jwt": f"eyJhbGciOiJI.eyJzdWIiOiIx.{A36}",
}
"""A secret for each pattern that masks all that it matches."""

IN_CONTEXT = {
    "aws-secret-key": ("AWS_SECRET_ACCESS_KEY=", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""),
    "bearer-token": ("Authorization: Bearer ", A36, "\nHost: x"),
    "basic-auth": ("Authorization: Basic ", "dXNlcjpwYXNzd29yZA==", '"'),
    "url-password": ("postgres://planner:", "hunter2", "@db.example/steno"),
    "assigned-secret": ("db_password = '", "tr0ub4dor&3"[:9], "'"),
}
"""Text before, secret and text after, for the patterns that leave a part of what they match."""

HARMLESS = (
    "sk-loading-spinner-container-wide",
    "the bearer of this authentication-method",
    "password: Optional[str] = None",
    "api_key = os.environ['OPENAI_API_KEY']",
    "max_tokens=100000000",
    "https://example.org:8080/a@b",
    "if '-----BEGIN PRIVATE KEY-----' in text: return",
    "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11",
)


def mask(name: str) -> str:
    return f"[redacted: {name}]"


@pytest.mark.parametrize(("name", "secret"), SECRETS.items())
def test_a_secret_is_masked_wherever_it_stands(name: str, secret: str) -> None:
    redactor = Redactor()
    for text in ("{}", "x={}", "({}).", "ä {}\nnext", '"{}"', "{}, then", "`{}`"):
        assert redactor.text(text.format(secret)) == text.format(mask(name))


@pytest.mark.parametrize(("name", "parts"), IN_CONTEXT.items())
def test_the_text_around_a_secret_stays(name: str, parts: tuple[str, str, str]) -> None:
    before, _, after = parts
    assert Redactor().text("".join(parts)) == f"{before}{mask(name)}{after}"


def test_every_pattern_has_an_example() -> None:
    found = {each.name for kind in KINDS for each in Redactor().findings(kind.text)}
    assert set(BUILT_IN) - found - {*SECRETS, *IN_CONTEXT} == set()


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_half_a_private_key_is_masked_to_the_end() -> None:
    assert Redactor().text(f"look:\n{BLOCK}AAAA") == f"look:\n{mask('private-key')}"
    in_json = BLOCK.replace("\n", "\\n")
    assert Redactor().text(f'{{"k":"{in_json}') == f'{{"k":"{mask("private-key")}'


def test_the_arguments_of_a_call_stay_json() -> None:
    arguments = json.dumps({"command": f"curl -H 'x: {SECRETS['openai-key']}'", "n": 1})
    call = {"id": "c", "function": {"name": "Shell", "arguments": arguments}}
    (masked,) = Redactor().value({"tool_calls": [call]})["tool_calls"]
    assert json.loads(masked["function"]["arguments"]) == {
        "command": f"curl -H 'x: {mask('openai-key')}'",
        "n": 1,
    }


def test_the_value_under_the_key_of_a_secret_is_masked() -> None:
    value = {"db_password": "correct-horse", "password": "short", "apiKey": "a b c d e f g h"}
    assert Redactor().value(value) == dict.fromkeys(value, mask("assigned-secret"))


def test_keys_of_objects_are_masked_and_none_is_lost() -> None:
    one, other = SECRETS["github-token"], SECRETS["github-token"].replace("a1", "z9")
    masked = Redactor().value({one: 1, other: 2})
    assert sorted(masked.values()) == [1, 2]
    assert not any(secret in key for key in masked for secret in (one, other))


@pytest.mark.parametrize("cut", range(1, len(SECRETS["openai-key"])))
def test_a_secret_in_two_parts_of_a_message_is_masked_in_both(cut: int) -> None:
    secret = SECRETS["openai-key"]
    parts = [
        {"type": "text", "text": f"key {secret[:cut]}"},
        {"type": "text", "text": f"{secret[cut:]} end"},
    ]
    one, other = Redactor().value({"content": parts})["content"]
    for start in range(len(secret) - 8):
        assert secret[start : start + 9] not in one["text"] + other["text"]
    assert one["text"].startswith("key ")
    assert other["text"].endswith(" end")
    assert parts[0]["text"] == f"key {secret[:cut]}"


def test_a_written_mask_hides_nothing() -> None:
    secret = SECRETS["github-token"]
    assert secret not in Redactor().text(f"[redacted: {secret}]")
    own = Redactor(Patterns([Own("line", "pass=.*")]))
    assert own.text("pass=a [redacted: line] b") == mask("line")
    assert own.text("[redacted: line] pass=a") == f"[redacted: line] {mask('line')}"


def test_findings_name_the_pattern_and_show_no_secret() -> None:
    secret = SECRETS["openai-key"]
    value = {"content": f"a [redacted: jwt], {secret} end", "n": [IN_CONTEXT["url-password"]]}
    found = Redactor().findings(value)
    assert [each.name for each in found] == ["openai-key"]
    assert found[0].preview == "a [redacted: jwt], [redacted: openai-key] end"


def test_a_tuple_is_a_list() -> None:
    assert Redactor().value({"labels": (SECRETS["jwt"], "x")}) == {"labels": [mask("jwt"), "x"]}


def test_no_pattern_masks_nothing() -> None:
    value = {"content": SECRETS["openai-key"]}
    assert Redactor(Patterns()).value(value) is value
    assert Redactor(Patterns()).text(SECRETS["openai-key"]) == SECRETS["openai-key"]


# --- the table of the configuration --------------------------------------------------------------


def test_own_patterns_are_added_and_built_in_ones_switched_off() -> None:
    table: dict[str, str | bool] = {"ticket": "TICKET-(?P<secret>[0-9]+)", "jwt": False}
    redactor = Redactor(patterns_of(table, "config.toml"))
    assert (
        redactor.text(f"ä TICKET-12 {SECRETS['jwt']}")
        == f"ä TICKET-{mask('ticket')} " + (SECRETS["jwt"])
    )
    assert redactor.text("half \ud800 TICKET-12") == f"half \ud800 TICKET-{mask('ticket')}"


def test_an_own_pattern_replaces_the_built_in_one_of_its_name() -> None:
    redactor = Redactor(patterns_of({"jwt": "JWT!"}, "config.toml"))
    assert redactor.names.count("jwt") == 1
    assert redactor.text(f"JWT! {SECRETS['jwt']}") == f"{mask('jwt')} {SECRETS['jwt']}"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"ticket": "(a"}, "redact.ticket is no regular expression of RE2"),
        ({"ticket": "a(?=b)"}, "no lookaround"),
        ({"ticket": "\ud800"}, "redact.ticket"),
        ({"tickets": True}, "redact.tickets is no built-in pattern"),
    ],
)
def test_a_wrong_pattern_is_named(table: dict[str, str | bool], says: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(says)) as raised:
        patterns_of(table, "/etc/config.toml")
    assert raised.value.message.startswith("/etc/config.toml: ")


# --- time ----------------------------------------------------------------------------------------

_BEFORE = (
    "password=", "Bearer ", "://a:", "authorization: basic ", "eyJ-", "-sk-", "sk-", "cookie: ",
    "token: \"", "--password ", "login a password ", "\x1b[", "%3", "\\\\", "&#x3", "api_key=",
)  # fmt: skip
_BEGINS = sorted({begin for _, begins, _ in ROWS for begin in begins.split()})
_ADVERSE = [
    *(begin * (100_000 // len(begin)) for begin in (*_BEGINS, *(hint for _, hint, _ in HINTED))),
    *(f"{before}{each}" * 7_000 for before in _BEFORE for each in ("a", "=", " ", "-", "\\", "\n")),
    *(begin + "a" * 100_000 for begin in ("sk-", "ya29.", "secret_", "", "\x1b]", "password='")),
    *(f"{begin}a1\n" * 20_000 for begin in ("sk-", "", "ghp_")),
    "a1b2\n" * 30_000,
    ("-----BEGIN PRIVATE KEY-----\n" + "A" * 17) * 7_000,
    "Private-Lines: 4\n" + "AAAA\n" * 20_000,
]


def _took_s(text: str) -> float:
    begun = time.process_time()
    DEFAULT.built_in.matches(text)
    return time.process_time() - begun


def test_no_built_in_pattern_takes_more_than_linear_time() -> None:
    slow = {text[:24]: (text, took) for text in _ADVERSE if (took := _took_s(text)) > 1}
    # Quadratic time is many seconds here. A slow machine takes longer than 1 s for some texts:
    # there half of the text has to take half of the time, and not a quarter.
    growth = {name: took / _took_s(text[: len(text) // 2]) for name, (text, took) in slow.items()}
    assert {name: grown for name, grown in growth.items() if grown > 3} == {}


def test_a_name_that_is_no_secret_has_its_value_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # A value may have 8 192 characters, and each of them may begin another such name.
    monkeypatch.setattr(named, "_ASSIGNMENTS", {})
    text = "key=page_token=bypass=" * 3
    assert list(named.spans(text, text)) == []


def test_a_pattern_that_backtracks_elsewhere_ends_at_once() -> None:
    begun = time.process_time()
    assert Redactor(Patterns([Own("evil", "(a+)+$")])).text("a" * 100_000 + "b").endswith("ab")
    assert time.process_time() - begun < 2


def test_after_too_many_matches_the_rest_of_a_text_is_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("steno_redact.patterns.SCAN_CHARS_MAX", 1)
    text = "x " * (MATCHES_MIN + 50)
    spans = list(Own("x", "x").spans(text))
    assert len(spans) == MATCHES_MIN + 1
    assert spans[-1] == (2 * MATCHES_MIN, len(text))
    assert SCAN_CHARS_MAX > 1


# --- any text and any value ----------------------------------------------------------------------

_PIECES = st.sampled_from(
    [*SECRETS.values(), *("".join(parts) for parts in IN_CONTEXT.values()), mask("jwt"),
     "[redacted: ", "]", " ", "\n", '"', "\\", "{", "}", "[1,", "sk-", "a1", "password=", "://x:"]
)  # fmt: skip
TEXTS = st.lists(_PIECES | st.text(max_size=3), max_size=6).map("".join)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS
    | st.dictionaries(TEXTS, TEXTS, max_size=2).map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS, inner, max_size=3)
        | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip
UNSTABLE = Patterns(
    [Own("first", "^[a-z]"), Own("word", r"\bsk"), Own("rest", "pass.*$")], DEFAULT.built_in
)
REDACTORS = st.sampled_from([Redactor(), Redactor(UNSTABLE)])


@given(REDACTORS, TEXTS)
def test_masking_a_text_twice_changes_nothing_more(redactor: Redactor, text: str) -> None:
    masked = redactor.text(text)
    assert redactor.text(masked) == masked


@given(REDACTORS, JSON)
def test_a_masked_value_is_json_of_the_same_shape_and_stays(redactor: Redactor, value: Any) -> None:
    before = json.dumps(value)
    masked = redactor.value(value)
    assert json.dumps(value) == before
    assert redactor.value(masked) == masked
    assert json.loads(json.dumps(masked)) == masked
    assert shape(masked) == shape(value)


def shape(value: Any) -> Any:
    match value:
        case dict():
            return [shape(each) for each in value.values()]
        case list():
            return [shape(each) for each in value]
        case str():
            return "text"
        case _:
            return value


@given(TEXTS, st.sampled_from([*SECRETS.values()]), TEXTS)
def test_no_secret_survives_between_any_texts(before: str, secret: str, after: str) -> None:
    masked = Redactor().text(f"{before} {secret} {after}")
    assert f" {secret} " not in masked


@given(JSON)
def test_findings_are_there_exactly_if_something_is_masked(value: Any) -> None:
    redactor: Redactor = Redactor()
    check: Callable[[Any], bool] = lambda each: redactor.value(each) != each  # noqa: E731
    assert bool(redactor.findings(value)) == check(value)
