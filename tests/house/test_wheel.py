"""The contents of the wheel."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from steno_protocol import __version__
from support.project import PROJECT, SOURCE_FOLDERS

DIST_INFO = f"stenod-{__version__}.dist-info"
DATA = f"stenod-{__version__}.data"
MAN_PAGE = f"{DATA}/data/share/man/man1/steno.1"
PACKAGES = {
    package.parent.name
    for folder in SOURCE_FOLDERS
    for package in (PROJECT / folder).glob("*/__init__.py")
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from the source distribution, so that this one is complete too."""
    folder = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(PROJECT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_has_all_packages_and_the_man_page(wheel: zipfile.ZipFile) -> None:
    beside = {name for name in wheel.namelist() if name.split("/")[0] not in PACKAGES}
    assert {name for name in beside if not name.startswith(f"{DIST_INFO}/")} == {MAN_PAGE}
    assert {name.split("/")[0] for name in wheel.namelist()} - {DATA} == {*PACKAGES, DIST_INFO}


def test_each_package_in_the_wheel_is_marked_as_typed(wheel: zipfile.ZipFile) -> None:
    marked = {name for name in wheel.namelist() if name.endswith("py.typed")}
    assert marked == {f"{package}/py.typed" for package in PACKAGES}


def test_every_module_of_the_folders_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    modules = {
        str(file.relative_to(PROJECT / folder))
        for folder in SOURCE_FOLDERS
        for file in (PROJECT / folder).rglob("*.py")
    }
    assert {name for name in wheel.namelist() if name.endswith(".py")} == modules


def test_the_scripts_that_complete_the_command_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    scripts = {name for name in wheel.namelist() if name.startswith("steno_cli/completions/")}
    assert {Path(name).name for name in scripts} == {
        "steno.bash",
        "steno.zsh",
        "steno.fish",
    }


def test_the_files_of_the_viewer_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    folder = PROJECT / "client" / "steno_view" / "static"
    there = {name for name in wheel.namelist() if name.startswith("steno_view/static/")}
    assert {Path(name).name for name in there} == {file.name for file in folder.iterdir()}


def test_the_wheel_brings_both_commands(wheel: zipfile.ZipFile) -> None:
    commands = wheel.read(f"{DIST_INFO}/entry_points.txt").decode()
    assert "steno = steno_cli.process:main" in commands
    assert "stenod = stenod.cli:main" in commands


def test_the_wheel_has_the_version_of_the_code(wheel: zipfile.ZipFile) -> None:
    metadata = wheel.read(f"{DIST_INFO}/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata


def test_wheel_requires_its_dependencies_and_no_extra(wheel: zipfile.ZipFile) -> None:
    metadata = Path(f"{DIST_INFO}/METADATA").as_posix()
    needs = [
        line.removeprefix("Requires-Dist: ")
        for line in wheel.read(metadata).decode().splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert {need.split(">")[0] for need in needs} == {"anyio", "msgspec", "pyzmq"}


def test_man_shows_the_page_of_an_installed_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("there is no man")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install"]
    words = [*pip, "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel.filename)]
    subprocess.run(words, check=True, capture_output=True)
    shown = subprocess.run(
        ["man", "-P", "cat", "steno"],
        env={**os.environ, "MANPATH": str(venv / "share" / "man"), "MANWIDTH": "80"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "steno - read and write the sessions of agents" in shown.stdout
    assert "steno tail [OPTIONS] SESSION" in shown.stdout
