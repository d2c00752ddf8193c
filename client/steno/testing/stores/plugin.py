"""The options and reports of the conformance suite in pytest."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from steno.testing.stores.process import DriverFailed
from steno.testing.stores.trial import Trial

_SUITE: Final = Path(__file__).with_name("suite.py")
CLAUSE_PROPERTY: Final = "store clause"
"""The property of a report that holds the name, verdict and summary of a clause."""

_LETTERS: Final = {"kept": ".", "broken": "F", "not offered": "n", "not observed": "o"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("stores", "conformance suite of session stores (steno.testing)")
    group.addoption("--store", metavar="MODULE:DRIVER", help="run the suite on this store")
    group.addoption(
        "--store-rounds", type=int, default=1, metavar="N",
        help="repeat the accidents of each clause N times as often (default: 1)",
    )  # fmt: skip
    group.addoption(
        "--store-seed", type=int, metavar="N", help="repeat a run (default: a random number)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the suite, and nothing else, unless paths were given."""
    if config.option.store is None:
        return
    if config.option.store_rounds < 1:
        raise pytest.UsageError("--store-rounds has to be at least 1")
    if config.option.store_seed is None:
        config.option.store_seed = random.randrange(2**32)
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(_SUITE)]


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the store and the seed."""
    if config.option.store is None:
        return None
    return f"store: {config.option.store}, repeat with --store-seed={config.option.store_seed}"


@pytest.fixture(scope="session")
def store_trial(pytestconfig: pytest.Config) -> Iterator[Trial]:
    """The store of `--store` under test."""
    options = pytestconfig.option
    store = options.store
    if store is None:
        pytest.skip("no store was given with --store")
    try:
        trial = Trial(store, seed=options.store_seed, rounds=options.store_rounds)
    except DriverFailed as error:
        pytest.exit(f"--store {store}: {error}", pytest.ExitCode.USAGE_ERROR)
    with trial:
        yield trial


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Count what is not offered and what is not observed apart from passed and failed."""
    verdict = _verdict_of(report)
    if verdict is None or report.when != "call":
        return None
    category = {"kept": "passed", "broken": "failed"}.get(verdict, verdict)
    return category, _LETTERS[verdict], verdict.upper()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the verdict on each clause."""
    lines = [
        f"{clause:<26}{verdict}: {summary}"
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, (clause, verdict, summary) in getattr(report, "user_properties", ())
        if name == CLAUSE_PROPERTY and report.when == "call"
    ]
    if lines:
        terminalreporter.section("store conformance")
        for line in lines:
            terminalreporter.line(line)


def _verdict_of(report: Any) -> str | None:
    for name, value in getattr(report, "user_properties", ()):
        if name == CLAUSE_PROPERTY:
            return str(value[1])
    return None
