"""The plugin of the conformance suite in a pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.project import PROJECT

STRAY = """
def test_of_the_user():
    pass
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Pytest as a user starts it, in a folder with a test of the user's own."""
    (folder / "test_stray.py").write_text(STRAY)
    environment = {
        **os.environ, "PYTHONPATH": str(PROJECT / "tests"), "COLUMNS": "100",
        # Half of the time of such a run is the import of plugins that it does not use.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "steno.testing", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_store_option_alone_runs_the_suite_and_nothing_else(tmp_path: Path) -> None:
    # Two of the clauses are enough: `test_store_suite` runs all of them.
    some = ("-k", "killed-writer or whole-batches")
    ran = run_pytest(tmp_path, "--store", "support.store_drivers:PlainDriver", "-v", "-x", *some)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "test_of_the_user" not in ran.stdout
    assert "collected 11 items" in ran.stdout
    assert "[killed-writer] KEPT" in ran.stdout
    assert "[whole-batches] NOT OFFERED" in ran.stdout
    assert "1 passed, 9 deselected, 1 not offered" in ran.stdout.splitlines()[-1]
    assert "whole batches             not offered: no `batches`" in ran.stdout


def test_broken_clause_fails_with_ids_and_the_seed(tmp_path: Path) -> None:
    arguments = ("--store", "support.store_drivers:FusingDriver", "-k", "torn-tail")
    ran = run_pytest(tmp_path, *arguments, "--store-seed", "5")
    assert ran.returncode == 1
    assert "store: support.store_drivers:FusingDriver, repeat with --store-seed=5" in ran.stdout
    assert "acknowledged entries lost: next-1 (" in ran.stdout
    assert "repeat with --store-seed=5 -k torn-tail" in ran.stdout
    assert "1 failed, 10 deselected" in ran.stdout.splitlines()[-1]


def test_driver_that_cannot_be_made_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--store", "mystore:Driver")
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--store mystore:Driver" in ran.stdout + ran.stderr
    assert "there is no module 'mystore' in" in ran.stdout + ran.stderr


def test_given_paths_are_collected_beside_the_suite(tmp_path: Path) -> None:
    store = ("--store", "support.store_drivers:PlainDriver", "-v", "-k", "user or read-your-writes")
    ran = run_pytest(tmp_path, *store, "test_stray.py")
    assert "1 passed" in ran.stdout.splitlines()[-1], ran.stdout
    ran = run_pytest(tmp_path, *store, "--pyargs", "steno.testing.stores.suite", "test_stray.py")
    assert "[read-your-writes] KEPT" in ran.stdout
    assert "2 passed, 10 deselected" in ran.stdout.splitlines()[-1], ran.stdout


def test_suite_runs_in_several_processes_of_pytest(tmp_path: Path) -> None:
    arguments = (
        "-p",
        "xdist",
        "-n",
        "2",
        "-k",
        "read-your-writes or whole-batches or conditional-append",
    )
    ran = run_pytest(tmp_path, "--store", "support.store_drivers:PlainDriver", *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed, 2 not offered" in ran.stdout.splitlines()[-1]
    assert "conditional append        not offered: no `expect`" in ran.stdout


def test_plugin_without_a_store_leaves_the_users_tests_alone(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout.splitlines()[-1]
    assert "store" not in ran.stdout.replace("test_stray", "").replace(str(tmp_path), "")


def test_rounds_below_one_are_a_wrong_usage(tmp_path: Path) -> None:
    ran = run_pytest(
        tmp_path, "--store", "support.store_drivers:PlainDriver", "--store-rounds", "0"
    )
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--store-rounds has to be at least 1" in ran.stderr


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("steno.testing", {"pytest", "anyio", "msgspec", "zmq", "subprocess"}),
        ("steno.testing.stores.worker", {"pytest", "anyio", "msgspec", "zmq", "subprocess"}),
        ("steno.testing.stores.clauses", {"pytest", "anyio", "msgspec", "zmq"}),
    ],
)
def test_import_brings_no_heavy_module(module: str, absent: set[str]) -> None:
    code = f"import sys\nimport {module}\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert absent & set(ran.stdout.split()) == set()
