"""What the journal says when servers, streams or messages are not as they have to be."""

import gc
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EINVAL, EMSGSIZE, ENAMETOOLONG, ENOSPC
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stenod_cluster import limits
from stenod_cluster.journal import (
    ForeignMessage,
    JournalLost,
    Kind,
    Owner,
    Publication,
    subject_of_name,
)
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.subjects import stream_name
from stenod_cluster.trust import Trust
from support.nats_cluster import NatsCluster, wait_until
from support.nats_journals import READY_S, joined, options, skip_without_servers
from support.nats_requests import ask

pytest.importorskip("nats", reason="NATS needs the extra: pip install -e '.[cluster]'")

from stenod_cluster.nats_journal import NatsJournal

ANN = Owner("ann", "a1", "tcp://10.0.0.1:7117")
BOB = Owner("bob", "b1", "tcp://10.0.0.2:7117")
FIRST = Publication("s", 0, ANN, Kind.OWN, b"")


@contextmanager
def journal_with(chosen: ReplicationOptions) -> Iterator[NatsJournal]:
    """A journal that need not be ready."""
    with joined(chosen, "ann") as journal:
        yield journal


def refused(chosen: ReplicationOptions, says: str) -> OSError:
    """Why nothing can be published, as soon as the journal knows it: that takes a connection."""
    found: list[int | OSError] = []

    def is_said() -> bool:
        found[:] = journal.publish([FIRST])
        return isinstance(found[0], OSError) and says in str(found[0].strerror)

    with journal_with(msgspec.structs.replace(chosen, publish_s=1.0)) as journal:
        wait_until(is_said, f"the journal does not say {says!r}")
    assert isinstance(found[0], OSError)
    return found[0]


def test_a_close_that_is_cut_short_leaves_no_socket(
    three_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with journal_with(options(three_nodes)) as journal:
        journal.wait_ready(READY_S)
        monkeypatch.setattr(limits, "CLOSE_S", 0.0)
    # What is still open then is a warning, and a warning is an error.
    gc.collect()


def test_without_a_server_the_error_names_its_address() -> None:
    chosen = ReplicationOptions("none", ("nats://127.0.0.1:9",))

    found = refused(
        chosen, "no NATS server listens at 127.0.0.1:9: start it, or correct replication.servers"
    )

    assert isinstance(found, JournalLost)


def test_a_host_without_an_address_is_named() -> None:
    nowhere = ReplicationOptions("none", ("nats://steno.invalid:4222",))

    found = refused(nowhere, "steno.invalid:4222 was not reached")

    assert isinstance(found, JournalLost)


def test_wrong_credentials_are_named_and_corrected_ones_work() -> None:
    skip_without_servers()
    with NatsCluster(1, extra="authorization { user: ann, password: right }") as cluster:
        plain = options(cluster)
        wrong, right = (
            msgspec.structs.replace(
                plain,
                servers=tuple(url.replace("//", f"//ann:{word}@") for url in plain.servers),
            )
            for word in ("wrong", "right")
        )

        found = refused(wrong, "refuses the credentials")
        assert "check replication.credentials" in str(found.strerror)
        assert "wrong" not in str(found.strerror)
        with journal_with(right) as journal:
            journal.wait_ready(READY_S)


def test_a_missing_right_is_named() -> None:
    skip_without_servers()
    rights = 'authorization { users: [{ user: ann, password: a, permissions: { publish: "x" } }] }'
    with NatsCluster(1, extra=rights) as cluster:
        plain = options(cluster)
        servers = tuple(url.replace("//", "//ann:a@") for url in plain.servers)

        says = "allow the account to publish and subscribe to steno.>"
        refused(msgspec.structs.replace(plain, servers=servers), says)


@pytest.mark.parametrize("text", [None, "no credentials\n"])
def test_credentials_that_are_none_are_refused_at_once(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "steno.creds"
    if text is not None:
        path.write_text(text)

    chosen = ReplicationOptions("t", ("nats://a",), credentials=str(path))
    with pytest.raises(OSError, match=r"replication\.credentials"):
        NatsJournal(chosen, "ann", Trust(None))


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with a certificate for 127.0.0.1, ca.pem, and its key, key.pem."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates need the command openssl")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=steno test", "-addext",
         "subjectAltName=IP:127.0.0.1",
         "-keyout", tmp_path / "key.pem", "-out", tmp_path / "ca.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path


def test_tls_is_used_and_its_mismatches_are_named(certificates: Path) -> None:
    skip_without_servers()
    tls = f"tls {{ cert_file: {certificates}/ca.pem, key_file: {certificates}/key.pem }}"
    with NatsCluster(1, extra=tls) as cluster:
        chosen = options(cluster)
        known = msgspec.structs.replace(chosen, tls_ca=f"{certificates}/ca.pem")
        with journal_with(known) as journal:
            journal.wait_ready(READY_S)
        found = refused(chosen, "is not valid here")
    assert "set replication.tls_ca" in str(found.strerror)


def test_a_certificate_of_the_daemon_that_the_server_wants_is_named(certificates: Path) -> None:
    skip_without_servers()
    files = {name: f"{certificates}/{name}.pem" for name in ("ca", "key")}
    tls = (
        f"tls {{ cert_file: {files['ca']}, key_file: {files['key']}, ca_file: {files['ca']},"
        " verify: true }"
    )
    with NatsCluster(1, extra=tls) as cluster:
        known = msgspec.structs.replace(options(cluster), tls_ca=files["ca"])
        own = msgspec.structs.replace(known, tls_cert=files["ca"], tls_key=files["key"])
        with journal_with(own) as journal:
            journal.wait_ready(READY_S)
        refused(known, "replication.tls_cert")


def test_a_server_without_tls_is_refused_where_tls_is_asked_for(
    certificates: Path, one_node: NatsCluster
) -> None:
    encrypted = msgspec.structs.replace(options(one_node), tls_ca=f"{certificates}/ca.pem")

    refused(encrypted, "does not encrypt")


def test_a_certificate_file_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for path in (tmp_path / "ca.pem", tmp_path / "none.pem"):
        chosen = ReplicationOptions("t", ("nats://a",), tls_ca=str(path))
        with pytest.raises(OSError, match=r"replication\.tls_ca"):
            NatsJournal(chosen, "ann", Trust(None))


def test_a_full_stream_refuses_and_keeps_what_it_has(
    three_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy disk takes longer for a large message; what is sent again would leave a doubt.
    monkeypatch.setattr(limits, "RESEND_S", READY_S)
    chosen = options(three_nodes)
    stream = stream_name(chosen.cluster)
    with journal_with(chosen) as journal:
        journal.wait_ready(READY_S)
        config = ask(three_nodes, f"$JS.API.STREAM.INFO.{stream}", {})["config"]
        config["max_bytes"] = 3_000_000
        assert "error" not in ask(three_nodes, f"$JS.API.STREAM.UPDATE.{stream}", config)
        after, kept = 0, 0
        while True:
            [found] = journal.publish([Publication("s", after, ANN, Kind.CHANGE, bytes(500_000))])
            if isinstance(found, OSError):
                break
            after, kept = found, kept + 1

        assert (found.errno, found.filename) == (ENOSPC, "s")
        assert stream in str(found.strerror)
        assert "steno cluster status" in str(found.strerror)
        assert len(list(journal.read("s", 0, after))) == kept
        journal.purge("s", after)
        [found] = journal.publish([Publication("s", after, ANN, Kind.CHANGE, bytes(500_000))])
        assert isinstance(found, int)
        wait_until(
            lambda: [each.bytes_max for each in journal.state().streams] == [3_000_000],
            "the limit is not in the facts",
        )


def test_a_server_that_takes_small_messages_only_is_named() -> None:
    skip_without_servers()
    with (
        NatsCluster(1, extra="max_payload: 64KB") as cluster,
        journal_with(options(cluster)) as journal,
    ):
        [large, small] = journal.publish(
            [Publication("s", 0, ANN, Kind.PART, bytes(100_000)), FIRST]
        )
    assert isinstance(large, OSError)
    assert large.errno == EMSGSIZE
    assert "set max_payload of all servers to 1MB or more" in str(large.strerror)
    assert isinstance(small, int)


def test_a_message_of_another_program_is_named_and_stays(three_nodes: NatsCluster) -> None:
    chosen = options(three_nodes)
    with journal_with(chosen) as journal:
        [first] = journal.publish([FIRST])
        assert isinstance(first, int)
        stream = stream_name(chosen.cluster)
        foreign = ask(three_nodes, f"steno.{chosen.cluster}.s.s", "hello")["seq"]
        # A replica that lags would answer with the message before.
        three_nodes.wait_for_messages(stream, 3, foreign)

        [found] = journal.publish([Publication("s", first, ANN, Kind.CHANGE, b"")])

        assert isinstance(found, ForeignMessage)
        assert found.sequence == foreign
        assert f"message {foreign} of 's' in the journal is not steno's" in str(found.strerror)
        with pytest.raises(ForeignMessage):
            list(journal.read("s", 0, foreign))
        [other] = journal.publish([Publication("t", 0, ANN, Kind.OWN, b"")])
        last, intact = journal.last_of(["s", "t"])
        assert isinstance(last, ForeignMessage)
        assert last.sequence == foreign
        assert not isinstance(intact, ForeignMessage | None)
        assert intact.sequence == other
        ask(three_nodes, f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": foreign})
        [found] = journal.publish([Publication("s", first, ANN, Kind.CHANGE, b"")])
        assert isinstance(found, int)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"num_replicas": 1}, "num_replicas is 1, and has to be 3"),
        ({"discard": "old"}, "discard is old, and has to be new"),
        ({"max_age": 10**12}, "max_age is 1000000000000, and has to be 0"),
        ({"max_msgs_per_subject": 9}, "max_msgs_per_subject is 9, and has to be -1"),
        ({"subjects": ["{cluster}.>"]}, "subjects is"),
        ({"storage": "memory"}, "storage is memory, and has to be file"),
        ({"allow_direct": False}, "allow_direct is false, and has to be true"),
        ({"allow_atomic": False}, "allow_atomic is false, and has to be true"),
    ],
)  # fmt: skip
def test_a_stream_with_other_settings_is_refused(
    three_nodes: NatsCluster, setting: dict[str, Any], says: str
) -> None:
    from stenod_cluster.streams import stream_config

    chosen = options(three_nodes)
    config = stream_config(chosen)
    if "subjects" in setting:
        setting = {"subjects": [f"{chosen.cluster}.>"]}
    created = ask(three_nodes, f"$JS.API.STREAM.CREATE.{config['name']}", config | setting)
    assert "error" not in created, created

    found = refused(chosen, says)

    assert found.errno == EINVAL
    assert f"nats stream edit {config['name']}" in str(found.strerror)


def test_servers_without_jetstream_are_named() -> None:
    skip_without_servers()
    with NatsCluster(1, jetstream=False) as cluster:
        refused(options(cluster), "JetStream is not enabled")


def test_three_replicas_on_one_server_are_refused(one_node: NatsCluster) -> None:
    refused(options(one_node, replicas=3), "replicas > 1 not supported in non-clustered mode")


def test_a_path_that_is_too_long_is_named(three_nodes: NatsCluster) -> None:
    long = subject_of_name("x" * 3000)
    with journal_with(options(three_nodes)) as journal:
        [found] = journal.publish([Publication(long, 0, ANN, Kind.NAME, b"")])
        with pytest.raises(OSError, match="use a shorter one"):
            journal.last(long)
    assert isinstance(found, OSError)
    assert found.errno == ENAMETOOLONG
