"""The table of stores that the bench makes."""

import json
from pathlib import Path

import pytest

from bench import stores
from bench.stores_environments import CANDIDATES, Missing, environment_of
from bench.stores_peers import (
    AdkDriver,
    AgentFrameworkDriver,
    AgnoDriver,
    KimiDriver,
    LangGraphDriver,
    LlamaIndexDriver,
    OpenAIDriver,
    StrandsDriver,
)
from steno.testing.stores import process
from steno.testing.stores.clauses import CLAUSES
from steno.testing.stores.driver import CAPABILITIES
from steno.testing.stores.verdicts import Finding
from support import warm_command


def column(name: str, *findings: Finding) -> stores.Column:
    (candidate,) = [each for each in CANDIDATES if each.name == name]
    return stores.Column(candidate, f"{name} 1.0", findings)


def test_bench_writes_every_finding_and_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "subprocess", warm_command.StoreWorkers)
    found, page = tmp_path / "found.json", tmp_path / "page.md"
    arguments = ["--only", "JSONL", "--only", "LangGraph", "--environments", str(tmp_path / "none")]
    stores.main([*arguments, "--seed", "3", "--json", str(found), "--markdown", str(page)])

    report = json.loads(found.read_text())
    plain, missing = report["stores"]
    assert report["seed"] == 3
    assert [finding["clause"] for finding in plain["findings"]] == [
        clause.name for clause in CLAUSES
    ]
    verdicts = {finding["clause"]: finding["verdict"] for finding in plain["findings"]}
    # A line behind a torn one is one line with it.
    assert verdicts["torn tail"] == "broken"
    assert verdicts["retry after a lost answer"] == "not offered"
    assert missing["findings"] == []
    assert missing["missing"] == "it is not installed: repeat with --install"

    text = page.read_text()
    assert "| clause | JSONL |" in text
    assert "| LangGraph | it is not installed: repeat with --install |" in text
    assert "* JSONL, torn tail: " in text
    output = capsys.readouterr()
    assert "LangGraph: left out: it is not installed" in output.err
    assert "torn tail" in output.out


def test_table_has_the_number_of_what_broke() -> None:
    lost = Finding("full disk", "broken", "3 of 40 acknowledged entries lost", "one-1", 7)
    raised = Finding("torn tail", "broken", "a call raised", "OSError: a | b\nc", 7)
    kept = Finding("torn tail", "kept", "4 cuts", "", 7)
    columns = [column("JSONL", lost, raised), column("steno", kept)]
    text = stores.markdown(columns, {"at": "2026-01-02", "seed": 7, "rounds": 1})
    assert "| full disk | broken (3 of 40) | - |" in text
    assert "| torn tail | broken | kept |" in text
    assert "* JSONL, torn tail: a call raised: OSError: a \\| b c" in text
    assert "torn tail                  broken            kept" in stores.text_table(columns)


def test_store_that_needs_no_package_runs_in_this_environment(tmp_path: Path) -> None:
    environment = environment_of(CANDIDATES[0], tmp_path, install=False)
    assert list(tmp_path.iterdir()) == []
    assert environment.path
    with pytest.raises(Missing, match="repeat with --install"):
        environment_of(CANDIDATES[-1], tmp_path, install=False)


@pytest.mark.parametrize(
    "driver",
    [
        AdkDriver,
        AgentFrameworkDriver,
        AgnoDriver,
        KimiDriver,
        LangGraphDriver,
        LlamaIndexDriver,
        OpenAIDriver,
        StrandsDriver,
    ],
)
def test_driver_of_another_store_offers_what_the_suite_knows(driver: type) -> None:
    assert driver.offers <= CAPABILITIES.keys()  # type: ignore[attr-defined]
