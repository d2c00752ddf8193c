"""What an import finds in a folder, and what it says of the rest."""

import json
from contextlib import closing
from pathlib import Path

from steno_follow.search import find_all
from steno_follow.source_tree import SourceTree
from support.agent_files import claude_node


def test_a_transcript_whose_name_is_no_id_is_named_and_taken_under_another(tmp_path: Path) -> None:
    file = tmp_path / "-srv-shop" / "a name.jsonl"
    file.parent.mkdir()
    file.write_text(json.dumps(claude_node("1", None, "user", "one")) + "\n")
    with closing(SourceTree(tmp_path)) as tree:
        sources, [(path, why)] = find_all(tree, None)
    assert (sources, path) == ([], file)
    assert "`steno import PATH ID` gives it one" in why
    with closing(SourceTree(file)) as tree:
        [source], left_out = find_all(tree, "mine")
    assert (source.session, left_out) == ("mine", [])
