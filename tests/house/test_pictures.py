"""The pictures of the guide: their sources, what they fetch, and what they show."""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from house.test_documents import GUIDES, README
from steno_cli.demo.proofs import prove
from tools import record_demo, render_diagrams, screenshots
from tools.render_diagrams import FOLDER, diagrams, seal

PICTURES = sorted(FOLDER.glob("*.svg"))


def _texts(name: str) -> str:
    """The text of a picture, each run of digits as one zero."""
    root = ElementTree.parse(FOLDER / name).getroot()
    text = " ".join("".join(each.itertext()) for each in root.iter() if each.tag.endswith("text"))
    return _without_numbers(text)


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", " ".join(text.replace("\u00a0", " ").split())).replace("0 0", "0")


@pytest.mark.parametrize("source", diagrams(), ids=lambda source: source.name)
def test_a_diagram_is_rendered_from_its_source(source: Path) -> None:
    picture = source.with_suffix(".svg").read_text()
    assert seal(source) in picture, f"run {render_diagrams.COMMAND}"


@pytest.mark.parametrize("source", diagrams(), ids=lambda source: source.name)
def test_a_diagram_has_a_ground_and_colours_for_light_and_dark(source: Path) -> None:
    picture = source.with_suffix(".svg").read_text()
    assert 'class="ground"' in picture
    assert "prefers-color-scheme: dark" in picture
    assert re.search(r'(?:fill|stroke)="(?!none)', picture) is None


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_fetches_nothing_and_names_no_path_of_a_machine(picture: Path) -> None:
    text = picture.read_text()
    ElementTree.fromstring(text)
    fetched = re.findall(r"@import|@font-face|href=|url\((?!#)|<image|<script|<foreignObject", text)
    assert fetched == []
    assert re.findall(r"/(?:home|root|work|Users|opt)/", text) == []
    addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_every_picture_has_a_source_and_a_page_that_describes_it() -> None:
    made = {*(source.with_suffix(".svg") for source in diagrams()), record_demo.PICTURE}
    made |= {screenshots.GUIDE / f"{name}.svg" for name in screenshots.IN_GUIDE}
    assert {*PICTURES} == made
    shown = "\n".join(page.read_text() for page in (README, *GUIDES))
    for picture in PICTURES:
        assert re.search(rf"!\[[^\]]{{20,}}\]\([^)]*pictures/{picture.name}\)", shown), picture.name


def test_the_recorded_terminal_shows_each_claim_that_the_demo_proves() -> None:
    shown = _texts("demo.svg")
    for claim in prove(b"", [], []):
        assert f"✓ {_without_numbers(claim)}" in shown


def test_the_readme_opens_with_the_recorded_demo_and_the_diagram_of_an_append() -> None:
    opening = README.read_text().split("## ")[0]
    assert re.findall(r"pictures/(\w+)\.svg", opening) == ["demo", "append"]


def test_a_recorded_terminal_replaces_a_line_from_its_beginning() -> None:
    picture = record_demo.drawn(b"one\r\n\r\x1b[K50 of 100\r\x1b[K\x1b[32mdone\x1b[0m\r\n")
    assert "50" not in re.sub(r"<[^>]*>|#[0-9a-f]{6}|\d+px", "", picture.split("</defs>")[1])
    assert ">done<" in picture


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small(picture: Path) -> None:
    assert picture.stat().st_size < 60_000


@pytest.mark.parametrize("name", screenshots.IN_GUIDE)
def test_a_screenshot_names_the_command_that_makes_it_again(name: str) -> None:
    assert screenshots.COMMAND in (screenshots.GUIDE / f"{name}.svg").read_text()


def test_a_screenshot_shows_a_command_without_the_shell_around_it(tmp_path: Path) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux, in which the programs of screenshots run, is not installed")
    (picture,) = screenshots.take(tmp_path, ["sessions-80"])
    shown = " ".join("".join(ElementTree.parse(picture).getroot().itertext()).split())
    assert shown.count("steno sessions") == 2
    assert "Fix the failing login #auth" in shown
    assert not shown.endswith("$")


def test_screenshots_without_tmux_end_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(screenshots.shutil, "which", lambda _: None)
    monkeypatch.setattr(screenshots.sys, "argv", ["screenshots", str(tmp_path)])
    with pytest.raises(SystemExit, match="tmux, in which the programs run, is not installed"):
        screenshots.main()
