"""Fixtures of all tests: event loops, a short root, one seed."""

import gc
import os
import random
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import trio
from blockbuster import BlockBuster, blockbuster_ctx

from support import journal_below, warm_daemon
from support.daemon_in_thread import DaemonInThread
from support.daemons import remove_root
from support.left_behind import end_left_behind, mark_children

CI_SEED = 20_260_101
"""CI runs draw the same numbers each time, so a merged change was tested with them."""

SLOW_S_MAX = 300
"""For a slow test that sets itself no other limit."""

BESIDE_FACTOR = 4
"""Of these limits for tests that run at a lower priority, beside others: a niceness of 10 gets them
a tenth of a processor, and a test of 29 s took more than 190 beside three busy processes."""

hypothesis.settings.register_profile(
    "steno",
    # A slow disk is no bug of ours, and a failure has to be repeatable from its report alone.
    deadline=None,
    # Nor is a busy processor: the check measures the time in which values are drawn.
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.load_profile("steno")


# Images of containers often set it. Without bytecode each of the thousands of processes that the
# tests start compiles all that it imports, which takes three times as long as its work.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of this run before hypothesis looks for it, and let SIGINT interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs with this setting, and our commands would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("hypothesis_seed") is None:
        chosen = CI_SEED if os.environ.get("CI") else random.randrange(2**32)
        config.option.hypothesis_seed = str(chosen)
    if journal_below.is_wanted():
        config.pluginmanager.register(journal_below)
        if not hasattr(config, "workerinput"):
            config.add_cleanup(journal_below.start().close)
    if hasattr(config, "workerinput"):
        _begin_elsewhere(config, config.workerinput)


def _begin_elsewhere(config: pytest.Config, worker: Mapping[str, Any]) -> None:
    """Let each worker collect all tests from another folder on.

    Each has to know all of them, and the first that meets a file compiles its assertions for the
    others: those who begin alike compile everything at the same time, which takes longer than the
    rest of the collection.
    """
    here = Path(__file__).parent
    if [Path(each).resolve() for each in config.args] != [here]:
        return
    tops = [here / file.relative_to(here).parts[0] for file in sorted(here.rglob("test_*.py"))]
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    folders = list(dict.fromkeys(tops))
    at = folders.index(tops[number * len(tops) // count])
    config.args[:] = [str(folder) for folder in (*folders[at:], *folders[:at])]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the collector away from what is collected, which lives as long as the process does.

    Each of its whole rounds would look at the half million objects of ten thousand tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed trio's scheduler, which draws the order in which tasks that are ready run.

    An order that only some seeds draw shows in runs by hand, and never as a surprise in CI.
    """
    seed = item.config.getoption("hypothesis_seed")
    trio._core._run._r.seed(f"{seed} {item.nodeid}")  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Give tests more time that need it: slow ones, and all of a run that others come before."""
    if hasattr(config, "workerinput"):
        # Workers that began elsewhere have to name the same order.
        items.sort(key=lambda item: str(item.path))
    yield
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S_MAX))
        if os.nice(0) > 0:
            own = item.get_closest_marker("timeout")
            seconds = own.args[0] if own else float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(BESIDE_FACTOR * seconds), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The workers of `-n auto`: one more than processors, as many tests wait for processes."""
    return (os.cpu_count() or 1) + 1


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to repeat this run."""
    seed = config.getoption("hypothesis_seed")
    return f"seed: {seed} (repeat with --hypothesis-seed={seed})"


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run, for tests that draw numbers themselves."""
    given = pytestconfig.getoption("hypothesis_seed")
    return int(given) if str(given).isdigit() else CI_SEED


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every async test runs on asyncio and on trio."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def no_daemon_left_behind() -> Iterator[None]:
    """Fail at the end of a run whose tests left daemons behind, and end those.

    A test uses the fixture `root`, or `second_root` for another one, which end their daemons.
    """
    mark_children()
    yield
    warm_daemon.end()
    left = end_left_behind()
    assert not left, "daemons were left behind:" + "".join(f"\n  {each}" for each in left)


@pytest.fixture
def root() -> Iterator[Path]:
    """A root whose path is short, because the path of a socket in it ends at 107 bytes.

    A daemon that still runs on it after the test is ended, and the folder is removed.
    """
    yield from _short_root()


@pytest.fixture
def second_root() -> Iterator[Path]:
    """Another root, as `root`."""
    yield from _short_root()


@pytest.fixture
def daemon(root: Path) -> Iterator[DaemonInThread]:
    """A daemon of the root, without options, that serves in a thread."""
    with DaemonInThread(root) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def shared_root() -> Iterator[Path]:
    """A root for all tests of a module that leave each other's sessions alone."""
    yield from _short_root()


def _short_root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="steno-")).resolve()
    try:
        yield folder
    finally:
        remove_root(folder)


@pytest.fixture
def no_blocking_calls() -> Iterator[BlockBuster]:
    """Blocking calls that steno's client makes on asyncio's event loop fail the test.

    The daemon is not held to it: it syncs a fast disk on its loop, on purpose and measured.
    """
    with blockbuster_ctx("steno") as blockbuster:
        yield blockbuster
