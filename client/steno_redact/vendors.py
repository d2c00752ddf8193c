r"""The forms of vendors' keys and tokens, by the beginning that makes each one known; pure.

Each row is a name, beginnings, and what follows them. All rows are one expression, a tree of their
beginnings, so that a text is searched once, and no row can take more than linear time: what follows
is one run of characters, or runs with a sign between them that no run contains.

Source: the document that a row names, read itself or as quoted by others; the other forms are from
practice.
"""

import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Final

from steno_redact.limits import CUT_CHARS_MAX, CUT_LINES_MAX, VENDOR_CHARS_MIN
from steno_redact.normal import Copy, Span, has_breaks, lines_of, long_words, without_breaks

_W: Final = "[A-Za-z0-9]"
_U: Final = "[A-Za-z0-9_-]"
_B: Final = "[A-Za-z0-9+/_-]"
_X: Final = "[a-fA-F0-9]"
# A digit tells a key from words in kebab case.
_DIGIT: Final = r"(?=[A-Za-z_-]{0,200}[0-9])"
# A key begins where no word goes on, so that a long word is looked at once. The dash in front of a
# line that a diff removes is no word.
BEGIN: Final = r"(?<![A-Za-z0-9_])(?:(?<!-)|(?<=\s-)|(?<=\A-))"
# What may not stand behind a key, and all behind the first characters of a JSON token.
_EXACT: Final = re.compile(r"\(\?!\[[^\]]*\]\)|(?<=\{8),2000(?=\})|(?<=\{8,2000\}).*?(?=\(\?P<)")
_UUID: Final = rf"{_X}{{8}}-{_X}{{4}}-{_X}{{4}}-{_X}{{4}}-{_X}{{12}}"

_KEY_CHARS: Final = "A-Za-z0-9_.+/%$=@:~-"
"""The characters of keys and tokens."""

_RUN: Final = re.compile(rf"[{_KEY_CHARS}]{{{VENDOR_CHARS_MIN},}}")
"""As many of them as the shortest key has."""

_CUT: Final = b"\x1f"
"""Stands for a line break inside of a run; a text with this character only gets a further look."""

_ALIKE: Final = bytes(
    ord("x") if each in _CUT or _RUN.fullmatch(chr(each) * VENDOR_CHARS_MIN) else ord(" ")
    for each in range(256)
)
_LONG: Final = b"x" * VENDOR_CHARS_MIN

_REST_CHARS_MIN: Final = 10
"""Characters that follow the beginning in the shortest key."""

Row = tuple[str, str, str]

ROWS: Final[tuple[Row, ...]] = (
    ("anthropic-key", "sk-ant-", rf"{_U}{{16,}}"),
    ("openai-key", "sk-", rf"{_DIGIT}{_U}{{20,}}"),
    ("google-key", "AIza", rf"{_U}{{35}}"),
    ("google-secret", "GOCSPX-", rf"{_U}{{20,}}"),
    ("google-token", "ya29.", r"[A-Za-z0-9._-]{20,}"),
    ("google-token", "1//0", rf"{_U}{{20,}}"),
    ("google-key", "GOOG1", r"[A-Z0-9]{20,}"),
    # GitHub, "Authentication token format updates", 2021-03-31: letters, digits and _, up to 255.
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9_]{36,255}"),
    ("github-token", "github_pat_", r"[A-Za-z0-9_]{22,255}"),
    # GitLab, "Token overview", table of token prefixes.
    ("gitlab-token", "_gitlab_session=", rf"{_X}{{32}}"),
    ("gitlab-token", ("glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glsoat- glimt- glagent- gloas-"
     " glffct- glwt-"), r"[A-Za-z0-9_.-]{20,}"),
    ("gitlab-token", "GR1348941", rf"{_U}{{20,}}"),
    ("atlassian-token", "ATATT3 ATCTT3", rf"{_U}{{20,}}=?{_X}{{0,8}}"),
    ("atlassian-token", "ATBB", rf"{_DIGIT}{_W}{{24,}}"),
    ("huggingface-token", "hf_ api_org_", rf"{_W}{{30,}}"),
    ("groq-key", "gsk_", rf"{_W}{{40,}}"),
    ("xai-key", "xai-", rf"{_DIGIT}{_W}{{40,}}"),
    ("perplexity-key", "pplx-", rf"{_W}{{32,}}"),
    ("replicate-token", "r8_", rf"{_W}{{30,}}"),
    ("nvidia-key", "nvapi-", rf"{_U}{{40,}}"),
    ("langsmith-key", "lsv2_pt_ lsv2_sk_", r"[A-Za-z0-9_]{32,}"),
    ("pinecone-key", "pcsk_", r"[A-Za-z0-9_]{40,}"),
    ("cerebras-key", "csk-", rf"{_DIGIT}{_W}{{32,}}"),
    ("tavily-key", "tvly-", rf"{_DIGIT}{_U}{{20,}}"),
    ("fireworks-key", "fw_", rf"{_DIGIT}{_W}{{20,}}"),
    # Slack, "Tokens": xoxb- of bots, xoxp- of users, xapp- of apps, xwfp- of workflows.
    ("slack-token", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp- xwfp-",
     r"[A-Za-z0-9.%-]{10,}"),
    ("slack-webhook", ("hooks.slack.com/services/ hooks.slack.com/workflows/"
     " hooks.slack.com/triggers/"), r"[A-Za-z0-9/_-]{20,}"),
    ("teams-webhook", "webhook.office.com/webhookb2/", r"[A-Za-z0-9/@_-]{40,}"),
    ("discord-webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/",
     rf"[0-9]{{10,22}}/{_U}{{40,}}"),
    # Stripe, in issue 458019 of GitLab: 10 to 128 letters and digits behind sk_live_ and rk_live_.
    ("stripe-key", "sk_live_ rk_live_", rf"{_W}{{10,128}}(?!{_W})"),
    ("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_org_", r"[A-Za-z0-9_]{16,}"),
    ("webhook-secret", "whsec_", rf"{_B}{{24,}}={{0,2}}"),
    ("square-token", "sq0atp- sq0csp- sq0idp-", rf"{_U}{{20,}}"),
    ("square-token", "EAAAE EAAAl", rf"{_DIGIT}{_U}{{55,}}"),
    ("braintree-token", "access_token$", rf"[a-z]{{4,12}}\$[a-z0-9]{{8,32}}\${_X}{{32}}"),
    # Shopify, "Length of the Shopify access token is increasing", 2020-04-01; shpua_ is later.
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_ shpua_", rf"{_X}{{32,}}"),
    ("notion-token", "ntn_", rf"{_W}{{40,}}"),
    ("notion-token", "secret_", rf"{_DIGIT}{_W}{{40,}}"),
    ("grafana-token", "glc_ glsa_", r"[A-Za-z0-9_+/]{32,}={0,2}"),
    ("sendgrid-key", "SG.", rf"{_DIGIT}[A-Za-z0-9_.-]{{60,}}"),
    ("twilio-key", "SK", rf"{_X}{{32}}(?![A-Za-z0-9])"),
    ("mailgun-key", "key-", rf"{_X}{{32}}(?![A-Za-z0-9])"),
    ("brevo-key", "xkeysib- xsmtpsib-", r"[a-zA-Z0-9-]{60,}"),
    ("resend-key", "re_", rf"{_DIGIT}[A-Za-z0-9_]{{30,}}"),
    # Vault, "Tokens": of services, batches and recovery, since 1.10.
    ("vault-token", "hvs. hvb. hvr.", rf"{_U}{{24,}}"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", rf"{_X}{{64}}"),
    ("docker-token", "dckr_pat_ dckr_oat_", rf"{_U}{{24,}}"),
    ("databricks-token", "dapi", rf"{_X}{{32}}(?:-[0-9])?(?![A-Za-z0-9])"),
    ("npm-token", "npm_", rf"{_W}{{36}}"),
    ("pypi-token", "pypi-AgE", rf"{_U}{{50,}}"),
    ("rubygems-key", "rubygems_", rf"{_X}{{48}}"),
    ("crates-token", "cio", rf"{_DIGIT}{_W}{{32}}(?!{_U})"),
    ("nuget-key", "oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])"),
    ("heroku-key", "HRKU-", rf"{_U}{{36,}}"),
    ("netlify-token", "nfp_ nfc_ nfo_ nfu_", rf"{_W}{{36,}}"),
    ("vercel-token", "vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_", r"[A-Za-z0-9_]{40,}"),
    ("cloudflare-token", "cfut_ cfat_ cfk_", rf"{_U}{{40,}}"),
    ("cloudflare-token", "v1.0-", r"(?=[0-9a-f-]{100})[0-9a-f-]{140,}"),
    ("fly-token", "fm1_ fm1a_ fm1r_ fm2_ fo1_", rf"{_B}{{40,}}={{0,2}}"),
    ("render-key", "rnd_", rf"{_DIGIT}{_W}{{24,}}"),
    ("supabase-key", "sbp_ sb_secret_", rf"{_U}{{30,}}"),
    ("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[A-Za-z0-9_.-]{32,}"),
    ("neon-key", "npg_ napi_", rf"{_DIGIT}{_W}{{12,}}"),
    ("sentry-token", "sntrys_ sntryu_", r"[A-Za-z0-9_+/=-]{40,}"),
    ("newrelic-key", "NRAK- NRJS- NRII- NRRA-", r"[A-Za-z0-9]{19,}"),
    ("linear-key", "lin_api_ lin_oauth_", rf"{_W}{{32,}}"),
    ("figma-token", "figd_ figo_ figu_", rf"{_U}{{40,}}"),
    ("dropbox-token", "sl.", r"(?=[A-Za-z_.-]{0,200}[0-9])[A-Za-z0-9_.-]{100,}"),
    ("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"[A-Za-z0-9_.-]{30,}"),
    ("1password-token", "ops_eyJ", r"[A-Za-z0-9+/_-]{100,}={0,2}"),
    ("pulumi-token", "pul-", rf"{_X}{{40}}"),
    ("artifactory-key", "AKCp", rf"{_W}{{60,}}"),
    ("artifactory-key", "cmVmdGtu", rf"{_W}{{50,}}"),
    ("sonarqube-token", "sqp_ squ_ sqa_", rf"{_X}{{40}}"),
    ("facebook-token", "EAA", rf"{_DIGIT}{_W}{{90,}}"),
    ("twitter-token", "AAAAAAAAAAAAAAAAAAAAA", r"[A-Za-z0-9%]{50,}"),
    ("nats-seed", "SUA SAA SOA SNA SCA SXA", r"[A-Z2-7]{55}(?![A-Za-z0-9])"),
    # age: Bech32 of 32 bytes; -PQ- for a hybrid key. Plugins: AGE-PLUGIN-NAME-.
    ("age-key", ("AGE-SECRET-KEY-1 age-secret-key-1 AGE-SECRET-KEY-PQ-1"
     " age-secret-key-pq-1"), r"[A-Za-z0-9]{58}"),
    ("age-key", "AGE-PLUGIN-", r"[A-Z0-9-]{40,}"),
    ("postman-key", "PMAK-", r"[A-Za-z0-9-]{50,}"),
    ("tailscale-key", "tskey-", rf"{_DIGIT}{_U}{{20,}}"),
    ("hubspot-token", "pat-na1- pat-na2- pat-eu1-", r"[A-Za-z0-9-]{32,}"),
    ("posthog-key", "phx_", rf"{_W}{{30,}}"),
    ("buildkite-token", "bkua_ bkaj_", rf"{_W}{{40,}}"),
    ("circleci-token", "CCIPAT_ CCIPRJ_", r"[A-Za-z0-9_]{40,}"),
    ("alibaba-key", "LTAI", rf"{_DIGIT}{_W}{{17,26}}(?!{_W})"),
    ("sourcegraph-token", "sgp_", r"[A-Za-z0-9_-]{40,}"),
    # PROTOCOL.md, STENO_TOKEN: three keys of 40 characters in base64.
    ("steno-token", "steno_", rf"{_U}{{160}}"),
    ("contentful-token", "CFPAT-", rf"{_U}{{40,}}"),
    ("launchdarkly-key", "sdk- mob- api-", rf"{_UUID}(?!{_W})"),
    ("dynatrace-token", "dt0c01. dt0s01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("airtable-token", "pat", rf"{_W}{{14}}\.{_X}{{64}}"),
    ("discord-token", "MD MT Mj Mz ND NT Nj Nz OD OT",
     rf"{_U}{{21,24}}\.{_U}{{6}}\.{_U}{{27,38}}(?!{_U})"),
    ("asana-token", "0/ 1/ 2/", rf"[0-9]{{14,20}}(?:/[0-9]{{14,20}})?:{_X}{{32}}"),
    # AWS, IAM User Guide, "IAM identifiers", table of unique ID prefixes.
    ("aws-key-id", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}(?![A-Z0-9])"),
    ("aws-key", "ABSK", r"[A-Za-z0-9+/]{60,}={0,2}"),
    ("jwt", "eyJ", (rf"{_U}{{8,2000}}+\.(?:eyJ{_U}{{8,20000}}\.{_U}{{8,}}"
     rf"|{_U}{{0,1000}}\.{_U}{{8,99}}\.{_U}{{8,20000}}\.{_U}{{8,}})")),
)  # fmt: skip
"""The rows; where two begin alike, the more exact one first."""

HINTED: Final[tuple[Row, ...]] = (
    ("azure-secret", "Q~", r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    ("azure-token", "JQQJ99", rf"{_W}{{52}}JQQJ99{_W}{{14,18}}[A-Za-z]{{4}}{_W}{{4}}"),
    ("azure-signature", "sig=", r"(?<=[?&]sig=)[A-Za-z0-9%+/_-]{20,}={0,2}"),
    ("telegram-token", ":AA", rf"(?<!{_W})[0-9]{{8,10}}:AA{_U}{{33}}(?!{_U})"),
    ("mailchimp-key", "-us", rf"(?<!{_W}){_X}{{32}}-us[0-9]{{1,2}}(?![0-9])"),
    ("terraform-token", ".atlasv1.", rf"(?<!{_W}){_W}{{14}}\.atlasv1\.{_U}{{60,70}}"),
    ("sentry-token", "sentry.io/", rf"(?<=://){_X}{{32}}(?::{_X}{{32}})?(?=@[a-z0-9.-]{{0,80}}sentry\.io/)"),
)  # fmt: skip
"""Forms that are known by a part inside of them: name, that part, and the whole expression."""

NAMES: Final = tuple(dict.fromkeys(name for name, *_ in (*ROWS, *HINTED)))


class Vendors:
    """What finds the keys and tokens of vendors.

    Args:
        names: the names of the rows that are on.
    """

    def __init__(self, names: Collection[str]) -> None:
        rows = [row for row in ROWS if row[0] in names]
        tree, self._names = _tree(rows)
        self.expression = re.compile(f"{BEGIN}{tree}") if rows else None
        self._begins = _beginnings(rows) if rows else None
        self._tree = tree
        self._anywhere: re.Pattern[str] | None = None
        # It finds at least as much, and looks at few characters: it may begin inside of a word.
        self._loosely = re.compile(_EXACT.sub("", tree)) if rows else None
        self._hinted = [
            (name, hint, re.compile(expression))
            for name, hint, expression in HINTED
            if name in names
        ]
        self._hints = [hint.encode() for _, hint, _ in self._hinted]

    def may_match(self, text: str) -> bool:
        """Whether a key or token may be in a text; far faster than `spans`, and often right."""
        if not self._may_begin(text):
            return False
        is_cut = has_breaks(text)
        # Every word of a line is there, too, beside more.
        words = long_words(without_breaks(text) if is_cut else text, VENDOR_CHARS_MIN)
        if any(hint in words for _, hint, _ in self._hinted):
            return True
        expression = self._loosely if is_cut else self.expression
        # The tree takes ten times as long for a character as the search for runs.
        return (
            expression is not None and expression.search(" ".join(_RUN.findall(words))) is not None
        )

    def _may_begin(self, text: str) -> bool:
        """Whether a long run has a beginning or a hint; no text with a key has none."""
        runs = _long_runs(text)
        if self._begins is not None and self._begins.search(runs) is not None:
            return True
        whole = runs.replace(_CUT, b"")
        return any(map(whole.__contains__, self._hints))

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Start, end and name of each, in no order."""
        if self.expression is not None:
            for found in self.expression.finditer(text):
                yield *found.span(), self.name_of(found)
        for name, hint, expression in self._hinted:
            if hint in text:
                for found in expression.finditer(text):
                    yield *found.span(), name

    def cut_spans(self, copy: Copy) -> Iterator[tuple[int, int, str]]:
        """Those in a copy without line breaks; one may also begin where a line began.

        What lies in a key of many lines is left out: that key is masked to its end. Else each line
        of it would cost a look at thousands of characters.
        """
        whole = sorted(self.spans(copy.text))
        yield from whole
        if self.expression is None:
            return
        wide = deque(each for each in whole if _is_wide(copy, each[:2]))
        reach = 0
        for at in copy.firsts:
            while wide and wide[0][0] <= at:
                reach = max(reach, wide.popleft()[1])
            if at + CUT_CHARS_MAX > reach and (found := self._beginning(copy, at)) is not None:
                yield found
                if _is_wide(copy, found[:2]):
                    reach = max(reach, found[1])

    def _beginning(self, copy: Copy, at: int) -> tuple[int, int, str] | None:
        """The one that begins here, whatever stands in front; one of many lines to its end."""
        if self._anywhere is None:
            self._anywhere = re.compile(self._tree)
        span: tuple[int, int, str] | None = None
        for end in (at + CUT_CHARS_MAX, len(copy.text)):
            found = self._anywhere.match(copy.text, at, end)
            if found is not None and (span is None or _is_wide(copy, found.span())):
                span = *found.span(), self.name_of(found)
            if span is None or span[1] < end:
                break
        return span

    def is_one(self, text: str) -> bool:
        """Whether a text is one key or token of a vendor, which line breaks may cut."""
        whole = without_breaks(text)
        return self.expression is not None and self.expression.fullmatch(whole) is not None

    def name_of(self, found: re.Match[str]) -> str:
        """The name of the row that matches."""
        return self._names[found.lastgroup or ""]


def _is_wide(copy: Copy, span: Span) -> bool:
    """Whether a key has more lines than are looked at for words."""
    return copy.runs(*span) > CUT_LINES_MAX


@lru_cache(maxsize=8)
def vendors_of(names: frozenset[str]) -> Vendors:
    """The search for these names; compiled once."""
    return Vendors(names)


def _long_runs(text: str) -> bytes:
    """The long runs of the characters of keys, which line breaks may cut."""
    if has_breaks(text):
        text = _CUT.decode().join(lines_of(text))
    data = text.encode("utf-8", "surrogatepass")
    # The search for one long word passes over short ones by its whole length.
    alike = data.translate(_ALIKE)
    runs: list[bytes] = []
    start = alike.find(_LONG)
    while start >= 0:
        end = alike.find(b" ", start)
        if end < 0:
            end = len(data)
        runs.append(data[start:end])
        start = alike.find(_LONG, end)
    return b" ".join(runs)


def _beginnings(rows: Sequence[Row]) -> re.Pattern[bytes]:
    """The beginnings of all rows where no word goes on, also with line breaks inside of them."""
    begins = _any_of([begin for _, begins, _ in rows for begin in begins.split()])
    cut = _CUT.decode()
    rest = f"[{cut}{_KEY_CHARS}]{{{_REST_CHARS_MIN}}}"
    return re.compile(f"(?<![A-Za-z0-9_]){begins}{rest}".encode())


def _any_of(words: Collection[str]) -> str:
    """An expression for words that line breaks may cut, a tree of their characters."""
    if "" in words:
        # A word ends here, whether others go on or not.
        return ""
    tree: dict[str, list[str]] = defaultdict(list)
    for word in words:
        tree[word[0]].append(word[1:])
    branches = [f"{re.escape(one)}{_CUT.decode()}*{_any_of(rest)}" for one, rest in tree.items()]
    return f"(?:{'|'.join(branches)})"


def _tree(rows: Sequence[Row]) -> tuple[str, dict[str, str]]:
    """One expression of all rows, a tree of their first two characters; and the name of each group.

    An empty group at the end of each row names it.
    """
    names: dict[str, str] = {}
    tree: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, begins, rest in rows:
        grouped: dict[str, list[str]] = defaultdict(list)
        for begin in begins.split():
            grouped[begin[:2]].append(re.escape(begin[2:]))
        for first, others in grouped.items():
            group = f"g{len(names)}"
            names[group] = name
            tree[first[0]][first[1]].append(f"(?:{'|'.join(others)}){rest}(?P<{group}>)")
    branches = (
        f"{re.escape(one)}(?:{'|'.join(_joined(two, leaves) for two, leaves in below.items())})"
        for one, below in tree.items()
    )
    return f"(?:{'|'.join(branches)})", names


def _joined(character: str, leaves: list[str]) -> str:
    return f"{re.escape(character)}(?:{'|'.join(leaves)})"
