"""Kinds of secrets in common use, each with a false example that is put together at run time.

No example stands in this file as one word: a scanner of a code host would take it for a secret, and
the vendors' own examples are made of the same alphabets and lengths.
"""

import base64
import json
import random
import string
from dataclasses import dataclass
from typing import Final

_LETTERS: Final = string.ascii_letters
_DIGITS: Final = string.digits
_HEX: Final = "0123456789abcdef"
_WORD: Final = _LETTERS + _DIGITS
_URL: Final = _WORD + "-_"
_B64: Final = _WORD + "+/"
_UPPER: Final = string.ascii_uppercase + _DIGITS
_B32: Final = string.ascii_uppercase + "234567"
_LOWER: Final = string.ascii_lowercase + _DIGITS


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of secret.

    Attributes:
        name: its name.
        secret: a false example.
        before: the text that stands before it where it is known by its name or place.
        after: the text that stands after it.
    """

    name: str
    secret: str
    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """The example where it stands."""
        return f"{self.before}{self.secret}{self.after}"


def _body(seed: str, count: int, alphabet: str = _WORD) -> str:
    """Characters that look random and are the same in every run; letters and digits alternate."""
    chosen = random.Random(seed)
    made = [chosen.choice(alphabet) for _ in range(count)]
    for place, options in ((1, _DIGITS), (count // 2, alphabet), (count - 2, _DIGITS)):
        allowed = [each for each in options if each in alphabet]
        if allowed:
            made[place] = chosen.choice(allowed)
    for place in (0, count - 1):
        # A key in a sentence does not begin or end with a sign.
        made[place] = chosen.choice([each for each in alphabet if each.isalnum()])
    return "".join(made)


def _uuid(seed: str) -> str:
    hexes = _body(seed, 32, _HEX)
    return "-".join((hexes[:8], hexes[8:12], "4" + hexes[13:16], "a" + hexes[17:20], hexes[20:]))


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(seed: str) -> str:
    head = _encoded({"alg": "HS256", "typ": "JWT"})
    return f"{head}.{_encoded({'sub': seed, 'iat': 1_516_239_022})}.{_body(seed, 43, _URL)}"


def _block(kind: str, seed: str, head: str = "") -> str:
    lines = [_body(f"{seed}{number}", 64, _B64) for number in range(4)]
    begin, end = (f"-----{word} {kind}-----" for word in ("BEGIN", "END"))
    return "\n".join([begin, *([head, ""] if head else []), *lines, end])


_PREFIXED: Final[tuple[tuple[str, str, int, str], ...]] = (
    # name, beginning, length of the rest, its alphabet
    ("aws access key id", "AKIA", 16, _B32),
    ("aws temporary key id", "ASIA", 16, _B32),
    ("aws service bearer token", "ABIA", 16, _B32),
    ("aws context-specific credential", "ACCA", 16, _B32),
    ("aws bedrock key", "ABSKQmVkcm9ja0FQSUtleS1", 108, _B64),
    ("google api key", "AIza", 35, _URL),
    ("google client secret", "GOCSPX-", 28, _URL),
    ("google access token", "ya29.", 120, _URL),
    ("google refresh token", "1//0", 60, _URL),
    ("google hmac key", "GOOG1E", 55, _UPPER),
    ("openai user key", "sk-", 48, _WORD),
    ("openai project key", "sk-proj-", 120, _URL),
    ("openai service key", "sk-svcacct-", 120, _URL),
    ("openai admin key", "sk-admin-", 120, _URL),
    ("anthropic key", "sk-ant-api03-", 95, _URL),
    ("anthropic oauth token", "sk-ant-oat01-", 95, _URL),
    ("openrouter key", "sk-or-v1-", 64, _HEX),
    ("deepseek key", "sk-", 32, _HEX),
    ("groq key", "gsk_", 52, _WORD),
    ("xai key", "xai-", 80, _WORD),
    ("perplexity key", "pplx-", 48, _WORD),
    ("huggingface token", "hf_", 34, _LETTERS + _DIGITS),
    ("replicate token", "r8_", 37, _WORD),
    ("nvidia key", "nvapi-", 64, _URL),
    ("langsmith key", "lsv2_pt_", 43, _HEX),
    ("pinecone key", "pcsk_", 70, _WORD),
    ("cerebras key", "csk-", 48, _LOWER),
    ("tavily key", "tvly-dev-", 32, _WORD),
    ("fireworks key", "fw_", 22, _WORD),
    ("github personal token", "ghp_", 36, _WORD),
    ("github oauth token", "gho_", 36, _WORD),
    ("github app user token", "ghu_", 36, _WORD),
    ("github app server token", "ghs_", 36, _WORD),
    ("github refresh token", "ghr_", 76, _WORD),
    ("github token of a later form", "ghs_0123_", 60, _WORD),
    ("github fine-grained token", "github_pat_", 82, _WORD),
    ("gitlab personal token", "glpat-", 20, _URL),
    ("gitlab deploy token", "gldt-", 20, _URL),
    ("gitlab runner token", "glrt-", 20, _URL),
    ("gitlab job token", "glcbt-", 20, _WORD),
    ("gitlab trigger token", "glptt-", 40, _HEX),
    ("gitlab feed token", "glft-", 20, _URL),
    ("gitlab scim token", "glsoat-", 20, _URL),
    ("gitlab mail token", "glimt-", 25, _URL),
    ("gitlab agent token", "glagent-", 50, _URL),
    ("gitlab oauth secret", "gloas-", 64, _HEX),
    ("gitlab session", "_gitlab_session=", 32, _HEX),
    ("gitlab runner registration", "GR1348941", 20, _URL),
    ("bitbucket app password", "ATBB", 32, _WORD),
    ("atlassian token", "ATATT3xFfGF0", 180, _URL),
    ("npm token", "npm_", 36, _WORD),
    ("pypi token", "pypi-AgEIcHlwaS5vcmc", 140, _URL),
    ("rubygems key", "rubygems_", 48, _HEX),
    ("crates token", "cio", 32, _WORD),
    ("nuget key", "oy2", 43, _LOWER),
    ("docker personal token", "dckr_pat_", 27, _URL),
    ("docker organisation token", "dckr_oat_", 32, _URL),
    ("slack bot token", "xoxb-123456789012-1234567890123-", 24, _WORD),
    ("slack user token", "xoxp-123456789012-123456789012-123456789012-", 32, _HEX),
    ("slack app token", "xapp-1-A0123456789-1234567890123-", 64, _HEX),
    ("slack workflow token", "xwfp-123456789012-1234567890123-", 24, _WORD),
    ("slack configuration token", "xoxe.xoxp-1-", 160, _WORD),
    ("stripe secret key", "sk_live_", 24, _WORD),
    ("stripe short secret key", "sk_live_", 10, _WORD),
    ("stripe restricted key", "rk_live_", 24, _WORD),
    ("stripe webhook secret", "whsec_", 32, _WORD),
    ("square access token", "sq0atp-", 22, _URL),
    ("square client secret", "sq0csp-", 43, _URL),
    ("square production token", "EAAAE", 59, _URL),
    ("shopify admin token", "shpat_", 32, _HEX),
    ("shopify app token", "shpua_", 32, _HEX),
    ("shopify shared secret", "shpss_", 32, _HEX),
    ("shopify custom app token", "shpca_", 32, _HEX),
    ("shopify private app token", "shppa_", 32, _HEX),
    ("notion token", "ntn_", 46, _WORD),
    ("notion old token", "secret_", 43, _WORD),
    ("grafana cloud token", "glc_eyJ", 100, _WORD),
    ("grafana service token", "glsa_", 32, _WORD),
    ("sendgrid key", "SG.", 66, _WORD),
    ("twilio key", "SK", 32, _HEX),
    ("mailgun key", "key-", 32, _HEX),
    ("brevo key", "xkeysib-", 64, _HEX),
    ("resend key", "re_", 33, _WORD),
    ("vault token", "hvs.", 95, _URL),
    ("vault batch token", "hvb.", 140, _URL),
    ("digitalocean token", "dop_v1_", 64, _HEX),
    ("digitalocean oauth token", "doo_v1_", 64, _HEX),
    ("databricks token", "dapi", 32, _HEX),
    ("heroku key", "HRKU-AA", 58, _URL),
    ("netlify token", "nfp_", 36, _WORD),
    ("vercel token", "vcp_", 56, _WORD),
    ("cloudflare token", "cfut_", 40, _WORD),
    ("cloudflare origin key", "v1.0-", 171, _HEX),
    ("fly.io token", "fm2_", 120, _B64),
    ("render key", "rnd_", 32, _WORD),
    ("supabase token", "sbp_", 40, _HEX),
    ("supabase secret key", "sb_secret_", 31, _URL),
    ("neon password", "npg_", 16, _WORD),
    ("planetscale token", "pscale_tkn_", 43, _URL),
    ("planetscale password", "pscale_pw_", 43, _URL),
    ("sentry user token", "sntryu_", 64, _HEX),
    ("sentry organisation token", "sntrys_eyJ", 180, _B64),
    ("new relic user key", "NRAK-", 27, _UPPER),
    ("linear key", "lin_api_", 40, _WORD),
    ("figma token", "figd_", 40, _URL),
    ("dropbox token", "sl.u.", 140, _URL),
    ("doppler token", "dp.pt.", 43, _WORD),
    ("1password service token", "ops_eyJ", 250, _B64),
    ("pulumi token", "pul-", 40, _HEX),
    ("artifactory key", "AKCp", 69, _WORD),
    ("sonarqube token", "squ_", 40, _HEX),
    ("facebook token", "EAACEdEose0cBA", 100, _WORD),
    ("twitter bearer token", "AAAAAAAAAAAAAAAAAAAAAM", 92, _WORD),
    ("nats user seed", "SUA", 55, _B32),
    ("age key", "AGE-SECRET-KEY-1", 58, "023456789ACDEFGHJKLMNPQRSTUVWXYZ"),
    ("age hybrid key", "AGE-SECRET-KEY-PQ-1", 58, "023456789ACDEFGHJKLMNPQRSTUVWXYZ"),
    ("postman key", "PMAK-", 59, _HEX),
    ("tailscale key", "tskey-auth-", 40, _WORD),
    ("hubspot token", "pat-na1-", 36, _HEX),
    ("posthog key", "phx_", 43, _WORD),
    ("buildkite token", "bkua_", 40, _HEX),
    ("circleci token", "CCIPAT_", 63, _WORD),
    ("alibaba key id", "LTAI", 20, _WORD),
    ("sourcegraph token", "sgp_", 40, _HEX),
    ("steno token", "steno_", 160, _URL),
    ("contentful token", "CFPAT-", 43, _URL),
)

_PLACED: Final[tuple[tuple[str, str, str, str], ...]] = (
    # name, text before, secret, text after
    ("aws secret key", "aws_secret_access_key = ", _body("awss", 40, _B64), ""),
    ("aws session token", "AWS_SESSION_TOKEN=", _body("awst", 200, _B64), ""),
    ("azure storage key", "AccountName=a;AccountKey=", f"{_body('azs', 86, _B64)}==", ";"),
    ("azure client secret", "client: ", f"{_body('azc', 3)}8Q~{_body('azd', 34)}", ""),
    ("azure shared access signature", "https://a.example/c?sv=2024&sig=",
     f"{_body('azg', 43)}%3D", ""),
    ("azure service bus key", "Endpoint=sb://a/;SharedAccessKey=", f"{_body('azb', 43)}=", ""),
    ("azure devops token", "pat ", (f"{_body('azo', 52)}JQQJ99{_body('azp', 14)}AZDO"
     f"{_body('azq', 4)}"), ""),
    ("discord bot token", "run ", f"MT{_body('dis', 24)}.{_body('diu', 6)}.{_body('div', 38)}", ""),
    ("discord webhook", "https://discord.com/api/webhooks/123456789012345678/",
     _body("diw", 68, _URL), ""),
    ("telegram bot token", "bot ", f"{_body('tel', 10, _DIGITS)}:AA{_body('teg', 33)}", ""),
    ("slack webhook", "https://hooks.slack.com/services/T01234567/B01234567/",
     _body("slw", 24), ""),
    ("teams webhook", "https://a.webhook.office.com/webhookb2/",
     f"{_uuid('tea')}@{_uuid('teb')}/IncomingWebhook/{_body('tec', 32, _HEX)}", ""),
    ("twilio auth token", "TWILIO_AUTH_TOKEN=", _body("twi", 32, _HEX), ""),
    ("mailchimp key", "use ", f"{_body('mch', 32, _HEX)}-us12", ""),
    ("braintree token", "use ", (f"access_token$production${_body('bra', 16, _LOWER)}$"
     f"{_body('brb', 32, _HEX)}"), ""),
    ("paypal client secret", "PAYPAL_CLIENT_SECRET=", _body("pay", 80, _URL), ""),
    ("postmark token", "X-Postmark-Server-Token: ", _uuid("pos"), ""),
    ("cohere key", "COHERE_API_KEY=", _body("coh", 40), ""),
    ("mistral key", "MISTRAL_API_KEY=", _body("mis", 32), ""),
    ("datadog key", "DD_API_KEY=", _body("dat", 32, _HEX), ""),
    ("algolia key", "ALGOLIA_ADMIN_KEY=", _body("alg", 32, _HEX), ""),
    ("linkedin secret", "LINKEDIN_CLIENT_SECRET=", _body("lin", 16), ""),
    ("snyk token", "SNYK_TOKEN=", _uuid("sny"), ""),
    ("launchdarkly key", "use ", f"sdk-{_uuid('lau')}", ""),
    ("asana token", "use ", (f"2/{_body('asa', 16, _DIGITS)}/{_body('asb', 16, _DIGITS)}:"
     f"{_body('asc', 32, _HEX)}"), ""),
    ("airtable token", "use ", f"pat{_body('air', 14)}.{_body('ais', 64, _HEX)}", ""),
    ("terraform cloud token", "use ", f"{_body('tfc', 14)}.atlasv1.{_body('tfd', 67)}", ""),
    ("dynatrace token", "use ", f"dt0c01.{_body('dyn', 24, _UPPER)}.{_body('dyo', 64, _UPPER)}",
     ""),
    ("okta token", "Authorization: SSWS ", f"00{_body('okt', 40, _URL)}", ""),
    ("json web token", "use ", _jwt("one"), ""),
    ("bearer token", "Authorization: Bearer ", _body("bea", 40), ""),
    ("basic authentication", "Authorization: Basic ", _body("bas", 32, _B64) + "==", ""),
    ("cookie", "Cookie: session=", _body("coo", 32), ""),
    ("postgres url", "postgresql://app:", "hunter2pw", "@db.example:5432/app"),
    ("mysql url", "mysql://root:", "sw0rdf1sh", "@db.example/app"),
    ("mongodb url", "mongodb+srv://app:", "sw0rdf1sh", "@c0.example.net/db"),
    ("redis url", "redis://:", "sw0rdf1sh", "@cache.example:6379/0"),
    ("amqp url", "amqps://guest:", "sw0rdf1sh", "@mq.example:5671"),
    ("basic-auth url", "https://ci:", "sw0rdf1sh", "@git.example/repo.git"),
    ("sentry dsn", "https://", _body("dsn", 32, _HEX), "@o123456.ingest.sentry.io/1234567"),
    ("wireguard key", "[Interface]\nPrivateKey = ", f"{_body('wir', 43, _B64)}=", ""),
    ("rsa key", "", _block("RSA PRIVATE KEY", "rsa"), ""),
    ("openssh key", "", _block("OPENSSH PRIVATE KEY", "ssh"), ""),
    ("pgp key", "", _block("PGP PRIVATE KEY BLOCK", "pgp", "Version: GnuPG v2"), ""),
    ("putty key", ("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: a\n"
     "Public-Lines: 1\nAAAA\nPrivate-Lines: 1\n"), _body("put", 48, _B64), "\nPrivate-MAC: 00"),
    ("service account", '{"type": "service_account", "private_key": "',
     _block("PRIVATE KEY", "gcp").replace("\n", "\\n"), '"}'),
    ("kubeconfig", "client-key-data: ", _body("kub", 120, _B64), ""),
    ("docker configuration", '{"auths": {"r.example": {"auth": "', _body("doc", 40, _B64), '"}}}'),
    ("npmrc", "//registry.example/:_authToken=", _uuid("npm"), ""),
    ("netrc", "machine a.example login me password ", "sw0rdf1sh", ""),
    ("steno key", 'public-key = "x"\n    secret-key = "', _body("ste", 40, _WORD + ".-:+^!*"),
     '"'),
    ("steno view address", "http://127.0.0.1:8321/#token=", _body("stv", 43, _URL),
     "&session=talk"),
    ("password", "password=", "hunter2", ""),
    ("quoted password", 'PASSWORD: "', "correct horse", '"'),
    ("password in json", '{"user": "me", "password": "', "hunter2", '"}'),
    ("database password", "DB_PASS=", "swordfish", ""),
    ("token", "TOKEN=", "swordfish", ""),
    ("api key", "API_KEY=", "swordfish", ""),
    ("secret", "secret: ", "swordfish", ""),
    ("password option", "mysqldump --password ", "swordfish", " app"),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (
    *(
        Kind(name, f"{begin}{_body(name, count, alphabet)}", "use ", " now")
        for name, begin, count, alphabet in _PREFIXED
    ),
    *(Kind(name, secret, before, after) for name, before, secret, after in _PLACED),
)
"""Every kind, in no order."""
