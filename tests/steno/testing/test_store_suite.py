"""The conformance suite of stores: steno keeps it, and broken stores do not."""

import os
from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import pytest

from steno.testing.stores import limits, process
from steno.testing.stores.clauses import CLAUSES
from steno.testing.stores.process import DriverFailed
from steno.testing.stores.trial import Clause, Trial
from steno.testing.stores.verdicts import Finding
from support import warm_command, warm_daemon
from support.store_drivers import BROKEN, Journal

CLAUSE_OF = {clause.name: clause for clause in CLAUSES}

every_clause = pytest.mark.parametrize("clause", CLAUSES, ids=[clause.id for clause in CLAUSES])
every_broken_store = pytest.mark.parametrize("kind", BROKEN, ids=[kind.__name__ for kind in BROKEN])


def run(driver: str, clause: Clause, seed: int) -> Finding:
    with Trial(driver, seed=seed) as trial:
        return trial.run(clause)


def driver_of(kind: type[Journal]) -> str:
    return f"support.store_drivers:{kind.__name__}Driver"


@pytest.fixture(scope="module")
def steno_trial(seed: int) -> Iterator[Trial]:
    """A trial of steno itself; a process with an interpreter of its own has described it."""
    with (
        patch.dict(os.environ, {warm_daemon.ADDRESS: warm_daemon.address()}),
        Trial("steno.testing.stores.steno_driver:Driver", seed=seed) as trial,
    ):
        yield trial


@pytest.fixture(scope="module", autouse=True)
def forks(steno_trial: Trial) -> Iterator[None]:
    """The workers of all other tests are forks; those of `test_store_plugin` are not."""
    with patch.object(process, "subprocess", warm_command.StoreWorkers):
        yield


@every_clause
def test_steno_keeps_every_clause_of_the_suite(
    steno_trial: Trial, clause: Clause, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each kill costs a process; those of tests/e2e are more and at any instant.
    monkeypatch.setattr(limits, "KILL_CALLS_MAX", 2)
    finding = steno_trial.run(clause)
    # Where tracing is forbidden, the clause about syncs observes nothing.
    expected = {"kept", "not observed"} if clause.name == "synced before the ack" else {"kept"}
    assert finding.verdict in expected, f"seed {finding.seed}: {finding}"


@pytest.mark.slow
@every_broken_store
def test_broken_store_is_noticed_by_its_clause(kind: type[Journal], seed: int) -> None:
    clause, _ = BROKEN[kind]
    finding = run(driver_of(kind), CLAUSE_OF[clause], seed)
    if finding.verdict == "not observed":
        pytest.skip(str(finding))
    assert finding.verdict == "broken", f"seed {finding.seed}: {finding}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@every_broken_store
def test_broken_store_is_noticed_by_no_other_clause(kind: type[Journal], seed: int) -> None:
    own, others = BROKEN[kind]
    indifferent = [clause for clause in CLAUSES if clause.name not in {own, *others}]
    # All of them take minutes; another run draws others.
    drawn = Random(f"{seed} {kind.__name__}").choice(indifferent)
    finding = run(driver_of(kind), drawn, seed)
    assert finding.verdict != "broken", str(finding)


def test_clause_without_its_capability_is_not_offered(seed: int) -> None:
    with Trial("support.store_drivers:PlainDriver", seed=seed) as trial:
        findings = [trial.run(clause) for clause in CLAUSES if clause.needs]
    assert {finding.verdict for finding in findings} == {"not offered"}
    assert findings[0].summary == "no `clear` and no `revert`"


def test_same_seed_tears_a_file_at_the_same_bytes() -> None:
    torn = CLAUSE_OF["torn tail"]
    first, again = (run("support.store_drivers:FusingDriver", torn, seed=5) for _ in range(2))
    assert first.verdict == "broken"
    assert "cut at byte" in first.detail
    assert first == again


def test_store_that_hangs_is_broken(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    with Trial("support.store_drivers:HangingDriver", seed=seed) as trial:
        # After the start of its first process, which may take longer than this on a busy machine.
        monkeypatch.setattr(limits, "REPLY_S_MAX", 2.0)
        finding = trial.run(CLAUSE_OF["read your writes"])
    assert (finding.verdict, finding.summary) == ("broken", "a call did not return")
    assert finding.detail == "no answer within 2 s"


@pytest.mark.parametrize("clause", ["concurrent opens", "concurrent writers", "read your writes"])
def test_store_that_crashes_its_process_is_broken(clause: str, seed: int) -> None:
    finding = run("support.store_drivers:CrashingDriver", CLAUSE_OF[clause], seed)
    assert finding.summary == "a call did not return"
    assert "ended by itself" in finding.detail
    assert "last words" in finding.detail


def test_store_that_prints_is_not_misunderstood(seed: int) -> None:
    finding = run("support.store_drivers:PrintingDriver", CLAUSE_OF["read your writes"], seed)
    assert finding.verdict == "kept", finding


def test_refused_append_is_broken_and_names_the_error(seed: int) -> None:
    finding = run("support.store_drivers:RefusingDriver", CLAUSE_OF["concurrent writers"], seed)
    assert finding.summary == f"4 of {limits.WRITERS_MAX * limits.APPENDS_MAX} appends raised"
    assert finding.detail == "RuntimeError: database is locked"


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        ("support.store_drivers", "not of the form mymodule:Driver"),
        ("no_such_module:Driver", "there is no module 'no_such_module' in"),
        ("support.store_drivers:NoSuchDriver", "NoSuchDriver"),
        ("support.store_drivers:BoastingDriver", "offers everything, and the suite knows keys"),
    ],
)
def test_driver_that_cannot_be_made_is_named(driver: str, message: str) -> None:
    with pytest.raises(DriverFailed, match=message):
        Trial(driver, seed=1)
