"""What redaction finds: the kinds of secrets, by name, behind a disguise, and at a bound."""

import json
import random
import time
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_redact import redactor as redactor_module
from steno_redact.limits import CUT_CHARS_MAX
from steno_redact.normal import joined
from steno_redact.patterns import DEFAULT
from steno_redact.redactor import TOO_LONG, Redactor
from steno_redact.vendors import HINTED, NAMES, ROWS, Vendors, vendors_of

from .kinds import KINDS, Kind

KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4"
ASSIGNED = "[redacted: assigned-secret]"


def test_the_list_has_more_than_a_hundred_kinds() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) > 101


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_secret_of_each_kind_is_masked_whole(kind: Kind) -> None:
    redactor = Redactor()
    for text in (kind.text, f"look:\n{kind.text}\nand then", f"({kind.text})"):
        masked = redactor.text(text)
        assert "[redacted: " in masked
        parts = [line for line in kind.secret.split("\n") if len(line) > 12] or [kind.secret]
        assert [part for part in parts if part in masked] == []
        assert redactor.text(masked) == masked


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_secret_of_each_kind_is_masked_in_a_record_and_in_arguments(kind: Kind) -> None:
    redactor = Redactor()
    call = {"function": {"name": "Shell", "arguments": json.dumps({"command": kind.text})}}
    record = {"role": "assistant", "content": kind.text, "tool_calls": [call]}
    masked = redactor.value(record)
    assert kind.secret not in masked["content"]
    arguments = json.loads(masked["tool_calls"][0]["function"]["arguments"])
    assert kind.secret not in arguments["command"]


# --- disguises -----------------------------------------------------------------------------------

NAMED = 'token="swordfish"'
DISGUISED = {
    "a colour before": f"\x1b[32m{KEY}",
    "a colour inside": f"{KEY[:14]}\x1b[0;1m{KEY[14:]}",
    "a written colour": f"\\x1b[32m{KEY}\\u001b[0m",
    "a colour in octal": f"\\033[1;31m{KEY}",
    "a colour without its begin": f"[32m{KEY}[0m",
    "a title of the terminal": f"\x1b]0;a title\x07{KEY}",
    "a written line break": f"export\\n{KEY}\\nnext",
    "a written tab": f"a\\t{KEY}",
    "twice written": f"a\\\\n{KEY}",
    "a character as unicode": KEY.replace("-", "\\u002d"),
    "a character as hexadecimal": KEY.replace("-", "\\x2d"),
    "a character of an address": f"key%3D{KEY.replace('-', '%2D')}",
    "an entity": KEY.replace("-", "&#45;"),
    "no width": f"{KEY[:9]}\u200b{KEY[9:]}",
    "a soft hyphen": f"{KEY[:9]}\u00ad{KEY[9:]}",
    "a tag": f"{KEY[:9]}\U000e0041{KEY[9:]}",
}


@pytest.mark.parametrize("disguise", DISGUISED)
def test_a_disguise_hides_no_key_and_is_masked_with_it(disguise: str) -> None:
    masked = Redactor().text(DISGUISED[disguise])
    assert "[redacted: openai-key]" in masked
    assert KEY[15:] not in masked


@pytest.mark.parametrize("begin", ["ghp_", "AKIA", "xoxb-", "glpat-", "hf_", "sk_live_", "npm_",
                                   "AIza", "sk-ant-"])  # fmt: skip
def test_a_vendors_key_is_found_behind_a_colour(begin: str) -> None:
    [kind] = [each for each in KINDS if each.secret.startswith(begin)][:1]
    assert kind.secret[len(begin) :] not in Redactor().text(f"\x1b[1m\x1b[32m{kind.secret}\x1b[0m")


UNFINISHED = {
    "a colour": "\x1b[1",
    "two colours": "\x1b[0;1m\x1b[1;31",
    "no parameters": "\x1b[",
    "a space inside": "\x1b[1 ",
    "one character": "\x9b1",
    "a written colour": "\\x1b[1",
    "in octal": "\\033[1;31",
    "as unicode": "\\u001b[0;1",
    "shown with a caret": "^[[1",
    "behind a word": "word\x1b[1",
}
"""Commands of a terminal without their last letter, which the first one of a secret then is."""


@pytest.mark.parametrize("before", UNFINISHED.values(), ids=UNFINISHED)
@pytest.mark.parametrize("begin", ["mob-", "ghp_", "AKIA", "hf_", "sk-proj-", "password="])
def test_a_secret_glued_to_an_unfinished_command_is_masked_whole(before: str, begin: str) -> None:
    secrets = [
        *(each.secret for each in KINDS),
        "mob-01234567-89ab-cdef-0123-456789abcdef",
        "password=swordfish",
    ]
    [secret] = [each for each in secrets if each.startswith(begin)][:1]
    masked = Redactor().text(f"{before}{secret} end")
    assert secret[-8:] not in masked
    assert masked.endswith("] end")
    if not begin.endswith("="):
        # The mask is no part of the command either: a terminal shows all of it.
        assert masked.startswith(("[redacted: ", "word[redacted: ", "\x1b[0;1m[redacted: "))


GLUED = [each for each in KINDS if each.secret[0].isdigit() or each.secret[0] == "-"]
"""Kinds that begin with what may also be a parameter of a command."""


@pytest.mark.parametrize(
    "before",
    ["\x1b[1", "\x1b[", "\x9b1", "\\x1b[1", "\\033[1;0;", "\\u001b[0;1", "\\e[", "^[[1"],
    ids=ascii,
)
@pytest.mark.parametrize("kind", GLUED, ids=lambda kind: kind.name)
def test_the_digits_of_an_unfinished_command_hide_no_key(before: str, kind: Kind) -> None:
    masked = Redactor().text(f"{kind.before}{before}{kind.secret}{kind.after}")
    ends = [line[-8:] for line in kind.secret.split("\n")[1:-1] or [kind.secret] if line]
    assert not [each for each in ends if each in masked]


def test_a_finished_command_in_front_of_a_key_stays() -> None:
    masked = Redactor().text(f"\x1b[1m{KEY}\x1b[0m")
    assert masked == "\x1b[1m[redacted: openai-key]\x1b[0m"


CONTROLS = [chr(code) for code in (*range(32), *range(127, 160))]
PREFIXES = [
    *CONTROLS,
    *(first + second for first in CONTROLS for second in ("\x1b", "\x9b", "\x9d", " ", "\x00")),
    *("\x1b" + rest for rest in ("[", "[1 ", "]", "]0;", "P", "_", "^", "(", "#", "  ", "\x1b ")),
]


@pytest.mark.parametrize("begin", ["ghp_", "AKIA", "xoxb-", "glpat-", "hf_", "sk_live_", "npm_",
                                   "AIza", "sk-ant-", "sk-proj-"])  # fmt: skip
def test_a_key_behind_control_characters_is_masked(begin: str) -> None:
    [kind] = [each for each in KINDS if each.secret.startswith(begin)][:1]
    redactor = Redactor()
    shown = [each for each in PREFIXES if kind.secret in redactor.text(f"{each}{kind.secret} end")]
    assert shown == []


def test_a_key_in_a_title_of_a_terminal_is_masked() -> None:
    assert KEY[15:] not in Redactor().text(f"\x1b]0;{KEY}\x07 and more")


@pytest.mark.parametrize("cut", range(4, len(KEY) - 1))
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\\\n    "])
def test_a_key_that_a_line_break_cuts_is_masked_whole(cut: int, line_break: str) -> None:
    masked = Redactor().text(f"the key\n{KEY[:cut]}{line_break}{KEY[cut:]}\nand more")
    assert masked == "the key\n[redacted: openai-key]\nand more"


@pytest.mark.parametrize("before", ["-", "-old\n-", "a line\r\n-", "\x1b[31m-"])
def test_a_key_in_a_line_that_a_diff_removes_is_masked(before: str) -> None:
    assert Redactor().text(f"{before}{KEY}\n+new") == f"{before}[redacted: openai-key]\n+new"


@pytest.mark.parametrize("line", ["sk-a1", "AAAA", "ya29.a1"])
def test_a_line_of_a_key_of_many_lines_is_looked_at_once(line: str) -> None:
    lines = 20_000
    copy = joined(f"4{line}\n" + f"{line}\n" * lines)
    assert copy is not None
    spans = list(vendors_of(frozenset(NAMES)).cut_spans(copy))
    assert max(end for _, end, _ in spans) == len(copy.text.rstrip())
    # Those of the last `CUT_CHARS_MAX` characters may go on beyond the key.
    assert len(spans) < CUT_CHARS_MAX // len(line) + 3 < lines


def test_a_word_of_the_next_line_is_no_part_of_a_key() -> None:
    assert Redactor().text(f"{KEY}\nThe next line") == "[redacted: openai-key]\nThe next line"


@pytest.mark.parametrize(
    "text",
    [
        '{\\"password\\": \\"swordfish\\"}',
        "password\\u003dswordfish",
        "a?password%3Dswordfish",
        "\x1b[1mpassword\x1b[0m=\x1b[31mswordfish\x1b[0m",
        '{\\n  "password": "swordfish"\\n}',
    ],
)
def test_a_name_is_found_behind_a_disguise(text: str) -> None:
    assert "swordfish" not in Redactor().text(text)


# --- names ---------------------------------------------------------------------------------------

ASSIGNMENTS = (
    "password=swordfish", 'PASSWORD: "swordfish"', '{"password": "swordfish"}', "DB_PASS=swordfish",
    "dbPass = 'swordfish'", "TOKEN=swordfish", "API_KEY=swordfish", "api-key: swordfish",
    "secret: swordfish", "clientSecret: 'swordfish'", "--password swordfish", "--token=swordfish",
    "passphrase = swordfish", "auth_token: swordfish", "X-Api-Key: swordfish",
    "x-auth-token: swordfish", "PGPASSWORD=swordfish psql", "private_key: swordfish",
    "MY_SECRET='swordfish'", "session_token := `swordfish`", "config['password'] = 'swordfish'",
    "credentials: swordfish", "wifi_pwd=swordfish", "Authorization: Custom swordfish",
    "Proxy-Authorization: swordfish", "Cookie: a=swordfish; b=swordfish",
    "Set-Cookie: sid=swordfish; HttpOnly", "curl -H 'Cookie: a=swordfish' x",
    "-H \"Authorization: ApiKey swordfish\"", "machine a login b password swordfish",
    "https://a.example/?access_token=swordfish&b=1",
)  # fmt: skip


@pytest.mark.parametrize("text", ASSIGNMENTS)
def test_a_value_is_masked_by_its_name_whatever_it_looks_like(text: str) -> None:
    assert "swordfish" not in Redactor().text(text)


SHORT = (
    ("TOKEN=", "a"), ("PASS=", "1"), ("DB_PASS=", "12"), ("PASSWORD=", "the"), ("TOKEN: ", "5"),
    ("password=", "supersecret"), ("passwd: ", "letmeinpassword"), ("secret: ", "hunter2pass"),
    ("pwd=", "SUPERSECRET"),
    ("API_KEY=", "password"), ("TOKEN = ", "none"), ("password=", "a"), ("token=", "5"),
    ('token = "', "on"), ('password: "', "is"), ('{"password": "', "no"), ("--pass ", "1"),
    ("Authorization: ", "a"), ("Cookie: ", "1"),
)  # fmt: skip


@pytest.mark.parametrize(("before", "value"), SHORT)
def test_a_value_of_one_word_or_number_is_masked_by_its_name(before: str, value: str) -> None:
    masked = Redactor().text(f"{before}{value}")
    assert masked.startswith(f"{before}[redacted: ")


@pytest.mark.parametrize("value", ["a", "1", "none", "the"])
def test_any_text_under_the_key_of_a_secret_is_masked(value: str) -> None:
    assert Redactor().value({"token": value}) == {"token": ASSIGNED}


HARMLESS = (
    "token = a", "token: a word", "password: must be long", "token = 12", "password=None",
    "token=str", "--token a word", "PASS: 12", 'auth="basic"',
    "max_tokens: 4096", "token_count=1200", '"tokens": 12', "total_tokens = 99", "token: 12",
    "the password is required", "password: str", "password: Optional[str] = None", "token: Token",
    "password = None", "secret: true", "token = self.token", "token=get_token()",
    "password=$PASSWORD", "password: ${DB_PASSWORD}", 'token: "{token}"', "password=password",
    "password=db_password", "password = dbPassword", "api_key=apikey",
    "Cookie: {session}", "Authorization = %s", 'cookie: "${SID}"', "Authorization: Bearer {token}",
    "api_key = os.environ['OPENAI_API_KEY']", "next_token: abcdef", "pad_token='<pad>'",
    "primary key: id", "key: value", "for key in mapping:", "tests pass: 12", "PASS: tests/a.sh",
    "bypass = 'yes'", "compass: north", "author: someone", "monkey = 'banana'", "tokenizer: fast",
    "secretary: Ann", "if token == other:", "password: a secret word", "pass",
)  # fmt: skip


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_assignment_of_a_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_values_under_the_keys_of_secrets_are_masked_at_every_depth() -> None:
    value = {"a": [{"login": {"password": "x y", "pin": 1}}], "cookie": ["a=1", "b=2"],
             "max_tokens": "many", "token": 7, "apiKey": "short"}  # fmt: skip
    masked = Redactor().value(value)
    assert masked["a"] == [{"login": {"password": ASSIGNED, "pin": 1}}]
    assert masked["cookie"] == ["[redacted: cookie]"] * 2
    assert (masked["max_tokens"], masked["token"], masked["apiKey"]) == ("many", 7, ASSIGNED)


def test_a_value_that_looks_like_a_mask_is_masked() -> None:
    value = {"password": "[redacted: hunter2]"}
    assert Redactor().value(value) == {"password": ASSIGNED}


# --- bounds --------------------------------------------------------------------------------------


def many(count: int) -> list[Any]:
    keys = [f"{'ghp_'}{number:036d}" for number in range(count)]
    deep: Any = keys[0]
    for key in keys[:60]:
        deep = [{"type": "text", "text": f"a {key}"}, {"type": "text", "text": "b"}, [deep]]
    return [
        dict.fromkeys(keys, KEY),
        {"content": [{"type": "text", "text": f"{key} "} for key in keys]},
        {"content": " ".join(keys)},
        {"password": keys},
        json.dumps({key: json.dumps({"password": key}) for key in keys}),
        deep,
    ]


def test_the_work_for_a_record_grows_with_its_size_and_not_faster() -> None:
    for value in many(3000):
        begun = time.process_time()
        shown = json.dumps(Redactor().value(value))
        # Quadratic work is 24 s and more.
        assert time.process_time() - begun < 8
        assert "ghp_0" not in shown
        # Neither does the answer grow: a mask has a number where its name is taken.
        assert len(shown) < 4 * len(json.dumps(value))


@pytest.mark.parametrize(
    "text",
    ['auth="x ', "auth:'a[", "auth:`1", "pass:***", "password: ${", "cookie: {", "eyJ", "eyJ\n"],
)
def test_the_work_for_a_name_does_not_grow_with_what_follows(text: str) -> None:
    begun = time.process_time()
    # Behind a line break, a vendor's key may begin inside of a word.
    Redactor().text("\n" + text * (200_000 // len(text)))
    # A look at thousands of characters for each name is 12 s and more, for `eyJ` 2 s.
    assert time.process_time() - begun < 6


def test_a_record_that_takes_too_much_work_is_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redactor_module, "RECORD_CHARS_MAX", 1000)
    record = {"role": "tool", "content": [f"{KEY} {number}" for number in range(50)], "x": KEY}
    found = Redactor().findings(record)
    assert Redactor().value(record) == {"role": "tool", "content": f"[redacted: {TOO_LONG}]"}
    assert found[-1].name == TOO_LONG
    assert Redactor().text(KEY * 100) == f"[redacted: {TOO_LONG}]"


@pytest.mark.parametrize("step", ["eyJ\n", "\\ngh", "\u200bx", "TOKEN=a "])
def test_escapes_breaks_and_matches_count_as_work(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redactor_module, "RECORD_CHARS_MAX", 20_000)
    record = {"role": "tool", "content": step * 1000, "x": KEY}
    assert Redactor().value(record) == {"role": "tool", "content": f"[redacted: {TOO_LONG}]"}
    # Line breaks of a text without a vendor's key take no work of their own.
    assert Redactor().text("1\n" * 1000) == "1\n" * 1000


def test_a_deep_value_is_masked_whole_and_not_an_error() -> None:
    deep: Any = KEY
    for _ in range(900):
        deep = [deep]
    assert Redactor().value({"role": "user", "content": deep})["role"] == "user"
    assert KEY not in json.dumps(Redactor().value({"content": deep}))


def test_a_clean_record_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    matches = DEFAULT.built_in.matches

    def counted(text: str) -> Any:
        searched.append(text)
        return matches(text)

    monkeypatch.setattr(type(DEFAULT.built_in), "matches", lambda _, text: counted(text))
    parts = [{"type": "text", "text": f"a text {number}"} for number in range(20)]
    record = {"role": "user", "content": parts, "tool_calls": [{"id": "1", "name": "Shell"}]}
    assert Redactor().value(record) is record
    assert len(searched) == 1


# --- what is searched at all ----------------------------------------------------------------------

AROUND = (
    " ", "\n", "\r\n", "\\\n", "\n  ", "\u2028", "word", "a-long-word-of-letters", "=", ":", "/",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_every_text_with_a_vendors_key_is_searched(seed: int) -> None:
    chance, vendors = random.Random(seed), vendors_of(frozenset(NAMES))
    found = 0
    for _ in range(300):
        pieces = [chance.choice([*AROUND, chance.choice(KINDS).text]) for _ in range(6)]
        text = "".join(pieces)
        cut = chance.randrange(len(text) + 1)
        text = text[:cut] + chance.choice(AROUND) + text[cut:]
        broken = joined(text)
        if [*vendors.spans(text)] or (broken is not None and [*vendors.cut_spans(broken)]):
            found += 1
            assert vendors.may_match(text), text
    assert found


BEGINNINGS = sorted(
    {
        *(begin for _, begins, _ in ROWS for begin in begins.split()),
        *(hint for _, hint, _ in HINTED),
    }
)
BODIES = st.text("abcdefXYZ0123456789_-./+=~%$@:", max_size=70)
BETWEEN = st.sampled_from(
    (*AROUND, "", "\n\n", "\\n", "\\u0041", '"', "%3D", "\x1f", "\x00", "\x1b[", "\u200b", "\ud800")
)  # fmt: skip
KEYS = st.sampled_from([*(each.secret for each in KINDS), *(each.text for each in KINDS)])


@given(
    st.lists(KEYS | st.builds(str.__add__, st.sampled_from(BEGINNINGS), BODIES) | BODIES | BETWEEN),
    st.lists(st.tuples(st.integers(0, 300), BETWEEN), max_size=4),
)
def test_a_text_that_is_passed_over_has_no_vendors_key(
    pieces: list[str], cuts: list[tuple[int, str]]
) -> None:
    text = "".join(pieces)
    for at, between in cuts:
        text = text[:at] + between + text[at:]
    found = DEFAULT.built_in.matches(text)
    with patch.object(Vendors, "may_match", return_value=True):
        assert DEFAULT.built_in.matches(text) == found


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_a_key_is_not_passed_over_where_a_line_break_cuts_what_it_is_known_by(begin: str) -> None:
    for text in (kind.text for kind in KINDS if begin in kind.text):
        for cut in range(text.find(begin), text.find(begin) + len(begin) + 1):
            cut_text = f"word\n{text[:cut]}\n  {text[cut:]}"
            found = DEFAULT.built_in.matches(cut_text)
            with patch.object(Vendors, "may_match", return_value=True):
                assert DEFAULT.built_in.matches(cut_text) == found
