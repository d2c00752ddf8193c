"""The options of `config.toml`: values from file and environment, and the errors."""

import tomllib

import pytest

from steno_protocol.errors import BadRequest
from steno_protocol.settings import (
    OPTIONS,
    Settings,
    example,
    mounted_folders,
    read_settings,
    redaction_table,
)
from support.documents import table_rows
from support.project import PROJECT

FILE = "/etc/steno/config.toml"


def _read(text: str, **environ: str) -> Settings:
    return read_settings(text, FILE, environ)


def test_without_a_file_every_option_has_its_default() -> None:
    settings = _read("")
    assert settings.values == {option.name: option.default for option in OPTIONS}
    assert {settings.source(option.name) for option in OPTIONS} == {"default"}


def test_a_value_of_the_file_has_the_file_as_its_source() -> None:
    settings = _read("# mine\n[log]\n\nlevel = 'debug'\nfiles = 7\n")
    assert settings.text("log.level") == "debug"
    assert settings.count("log.files") == 7
    assert settings.source("log.level") == FILE
    assert settings.source("log.files") == FILE


def test_the_environment_overrides_the_file() -> None:
    settings = _read("[log]\nlevel = 'debug'\n", STENO_LOG_LEVEL="error")
    assert settings.text("log.level") == "error"
    assert settings.source("log.level") == "environment STENO_LOG_LEVEL"


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ('"10 GiB"', 10 << 30),
        ('"64 KiB"', 64 << 10),
        ("4096", 4096),
        ('"1.5 MB"', 1_500_000),
        ('"7k"', 7000),
    ],
)
def test_a_size_is_a_number_or_has_a_unit(given: str, size: int) -> None:
    assert _read(f"[disk]\nroot_bytes = {given}\n").count("disk.root_bytes") == size


CLUSTER = """
[replication]
cluster = "team"
servers = ["nats://ann:secret@10.0.0.1:4222", "tls://[::1]:4222"]
monitors = ["http://10.0.0.1:8222/"]
advertise = "tcp://10.0.0.5:7117"
credentials = "~/steno.creds"
lazy_sync = true
"""


def test_a_cluster_has_addresses_a_path_and_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/ada")
    settings = _read(CLUSTER)
    assert settings.addresses("replication.servers") == (
        "nats://ann:secret@10.0.0.1:4222",
        "tls://[::1]:4222",
    )
    assert settings.path("replication.credentials") == "/users/ada/steno.creds"
    assert settings.path("replication.tls_ca") == ""
    assert settings.is_on("replication.lazy_sync")
    assert not Settings().is_on("replication.lazy_sync")


def test_a_shown_address_has_no_password() -> None:
    shown = _read(CLUSTER).shown("replication.servers")
    assert shown == ("nats://***@10.0.0.1:4222", "tls://[::1]:4222")


def test_the_environment_separates_addresses_by_commas() -> None:
    settings = _read(
        CLUSTER,
        STENO_REPLICATION_SERVERS="nats://a:1,nats://b:2",
        STENO_REPLICATION_LAZY_SYNC="false",
    )
    assert settings.addresses("replication.servers") == ("nats://a:1", "nats://b:2")
    assert not settings.is_on("replication.lazy_sync")


def test_mounts_come_from_the_file_or_entirely_from_the_environment() -> None:
    text = '[mounts]\nkimi = "~/.kimi/sessions"\n'
    assert _read(text).mounts == {"kimi": "~/.kimi/sessions"}
    assert _read(text).source("mounts.kimi") == FILE
    both = _read(text, STENO_MOUNTS="a=/data/a:b=/data/b")
    assert both.mounts == {"a": "/data/a", "b": "/data/b"}
    assert both.source("mounts.a") == "environment STENO_MOUNTS"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[log]\nlevel = 3\n", "log.level has to be one of debug, info, warning, error"),
        ("\n[log]\n\nlevle = 'info'\n", "did you mean 'log.level'?"),
        ("verbose = true\n", "there is no option 'verbose'"),
        ("[disk]\nfree_bytes = 'much'\n", 'a number of bytes, or text such as "10 GiB"'),
        ("[disk]\nfree_bytes = -1\n", "has to be 0 or more"),
        ("[disk]\n# a\nfree_bytes = true\n", "a number of bytes"),
        ("[disk]\ntrash_days = nan\n", "a number of days"),
        ("[metrics]\nport = 70000\n", "has to be 65535 or less"),
        ("[log]\nfiles = 1.5\n", "a whole number"),
        ("[mounts]\nKimi = '/a'\n", "'Kimi' cannot name a mount"),
        ("[mounts]\nkimi = 'sessions'\n", "needs an absolute folder"),
        ("log.level = [\n 'info',\n]\n", "log.level"),
        ("[log]\nfile_bytes = inf\n", "log.file_bytes has to be a number of bytes"),
        ("[log]\nfile_bytes = nan\n", "log.file_bytes has to be a number of bytes"),
        (f"[log]\nfile_bytes = '{'9' * 400}'\n", "log.file_bytes has to be a number of bytes"),
        (f"[life]\nidle_exit_s = {'9' * 400}\n", "life.idle_exit_s has to be a number of"),
        (f"[log]\nfiles = 0x{'f' * 5000}\n", "a whole number, not what stands there"),
        (f"\n[log]\nfiles = {'9' * 5000}\n", "a number has too many digits"),
        (f"\nx = {'[' * 10_000}{']' * 10_000}\n", "nested too deeply"),
        (f"\n\nlog.{'a.' * 5000}b = 1\n", "there is no option 'log.a'"),
        ("[mounts]\nkimi = '~nosuchuser/x'\n", "'kimi' begins with ~nosuchuser, and there is"),
        ('[mounts]\nkimi = "/a\\u0000b"\n', "'kimi' holds a NUL"),
        ("[replication]\ncluster = 'a.b'\n", "has to be up to 32 letters, digits, - and _"),
        ("[replication]\nservers = 3\n", "has to be an array of up to 16 addresses"),
        ("[replication]\nservers = ['10.0.0.1:4222']\n", '["nats://10.0.0.1:4222"]'),
        ("[replication]\nmonitors = ['nats://a:1']\n", '["http://10.0.0.1:8222"]'),
        ("[replication]\nmonitors = ['http://a:b@c']\n", '["http://10.0.0.1:8222"]'),
        (f"[replication]\nservers = {['nats://a'] * 17}\n", "up to 16 addresses"),
        ("[replication]\nadvertise = 'tcp://*:1'\n", "an address that other hosts reach"),
        ("[replication]\ntls_ca = 'ca.pem'\n", "the absolute path of a file, or empty"),
        ("[replication]\nlazy_sync = 1\n", "has to be true or false, not 1"),
        ("[replication]\nreplicas = 0\n", "has to be 1 or more"),
        ("[replication]\ncluster = 'team'\n", "is set, and needs replication.servers"),
        ("[replication]\nservers = ['nats://a']\n", "is set, and needs replication.cluster"),
        ("[replication]\ntls_cert = '/c.pem'\n", "is set, and needs replication.tls_key"),
    ],
)
def test_an_error_names_file_option_and_remedy(text: str, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        _read(text)
    assert refused.value.message.startswith(f"{FILE}: ")
    assert words in refused.value.message


def test_a_toml_error_names_its_line() -> None:
    with pytest.raises(BadRequest, match=r"config\.toml is not TOML: .*line 2"):
        _read("[log]\nlevel = \n")


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(BadRequest, match=r"environment STENO_LOG_FILES: log\.files has to be"):
        _read("", STENO_LOG_FILES="many")
    with pytest.raises(BadRequest, match="environment STENO_MOUNTS: 'kimi' has to be name=folder"):
        _read("", STENO_MOUNTS="kimi")


def test_a_mount_in_a_home_is_known_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/ada")
    text = "[mounts]\nkimi = '~/.kimi'\ndata = '/data'\n"
    assert _read(text).folders == {"kimi": "/users/ada/.kimi", "data": "/data"}


def test_invalid_configuration_still_gives_its_valid_mounts() -> None:
    text = "[log]\nlevle = 3\n[mounts]\nkimi = '/data'\nother = 3\ngone = '~nosuchuser'\n"
    assert mounted_folders(text, FILE) == {"kimi": "/data"}
    assert mounted_folders("mounts = 3\n", FILE) == {}
    with pytest.raises(BadRequest, match="nested too deeply"):
        mounted_folders("x = " + "[" * 10_000, FILE)


def test_the_table_of_redaction_has_patterns_and_switches() -> None:
    settings = _read("[redact]\nticket = 'T-[0-9]+'\njwt = false\n")
    assert settings.redact == {"ticket": "T-[0-9]+", "jwt": False}
    assert settings.source("redact.ticket") == FILE


def test_the_table_of_redaction_names_sessions() -> None:
    settings = _read("[redaction]\nsessions = ['planner', 'team/*', 'kimi:a/b']\n")
    assert settings.redact == {"sessions": ("planner", "team/*", "kimi:a/b")}


def test_invalid_configuration_still_gives_its_table_of_redaction() -> None:
    assert redaction_table("[log]\nlevle = 3\n[redact]\njwt = false\n", FILE) == {"jwt": False}
    assert redaction_table("", FILE) == {}
    for wrong in ("redact = 3\n", "[redact]\nticket = 3\n"):
        with pytest.raises(BadRequest):
            redaction_table(wrong, FILE)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("Ticket = 'x'", "'Ticket' cannot name a pattern of redaction"),
        ("ticket = 3", "redact.ticket has to be a regular expression"),
        ("sessions = 'planner'", "redact.sessions has to be a list of up to 100 session ids"),
        ("sessions = [3]", "redact.sessions has to be a list"),
        ("sessions = ['two words']", "redact.sessions has to be a list"),
        (f"sessions = {['a'] * 101}", "redact.sessions has to be a list"),
        ("ticket = ''", "redact.ticket has to be a regular expression"),
        (f"ticket = '{'x' * 1001}'", "up to 1000 characters"),
        ("\n".join(f"p{number} = 'x'" for number in range(101)), "more than 100 entries"),
    ],
)
def test_a_wrong_pattern_of_redaction_is_named(entry: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says) as raised:
        _read(f"[redact]\n{entry}\n")
    assert raised.value.message.startswith(FILE)


def test_the_example_has_every_option_and_changes_nothing() -> None:
    assert _read(example()).values == Settings().values
    text = example().replace("# kimi", "kimi")
    for option in OPTIONS:
        key = option.name.partition(".")[2]
        assert text.count(f"\n# {key} = ") >= 1
        text = text.replace(f"\n# {key} = ", f"\n{key} = ", 1)
    uncommented = _read(text)
    assert uncommented.values == Settings().values
    assert len(uncommented.sources) == len(OPTIONS) + 1
    assert tomllib.loads(text)["mounts"] == {"kimi": "~/.kimi/sessions"}


def test_a_document_has_a_row_for_every_option_with_its_default_and_meaning() -> None:
    rows = table_rows(PROJECT / "client" / "guide" / "configuration.md", "Options")
    assert rows == [[option.name, option.default_text, option.description] for option in OPTIONS]
