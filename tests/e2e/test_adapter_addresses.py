"""The daemon and the session of a path, found without starting anything."""

from pathlib import Path

import pytest

from steno.adapters._address import Address, find_address


@pytest.fixture
def home(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's root, with one mount."""
    monkeypatch.setenv("STENO_HOME", str(root))
    (root / "config.toml").write_text(f'[mounts]\ntree = "{root}/tree"\n')
    return root


def test_a_file_in_the_users_root_belongs_to_its_daemon(home: Path) -> None:
    folder = home / "sessions" / "team" / "b"
    assert find_address(folder / "context.jsonl") == Address(home, "team/b", folder, None, False)


def test_a_file_below_a_mount_gets_the_address_of_the_mount(home: Path) -> None:
    folder = home / "tree" / "a"
    assert find_address(folder / "context.jsonl") == Address(home, "tree:a", folder, None, False)


@pytest.mark.parametrize(
    "config", ["mounts = 3\n", "[mounts]\nkimi = '~nosuchuser/x'\n", "x = " + "[" * 10_000]
)
def test_a_config_that_is_wrong_is_for_the_daemon_to_refuse(
    home: Path, tmp_path: Path, config: str
) -> None:
    (home / "config.toml").write_text(config)
    assert find_address(tmp_path / "c" / "context.jsonl").session == "tree:c"


def test_sessions_beside_each_other_share_the_daemon_of_the_folder_above(
    home: Path, tmp_path: Path
) -> None:
    one, other = (find_address(tmp_path / name / "context.jsonl") for name in "cd")
    assert one.root == other.root
    assert one.root.parent == home / "adapters"
    assert (one.session, one.tree, other.session) == ("tree:c", tmp_path.resolve(), "tree:d")


def test_a_file_of_another_name_has_its_session_beside_it(home: Path, tmp_path: Path) -> None:
    found = find_address(tmp_path / "e" / "ctx.jsonl")
    assert found.session == "tree:e/_ctx.jsonl.steno"
    assert found.context == tmp_path.resolve() / "e" / "_ctx.jsonl.steno" / "context.jsonl"
    assert found.is_companion


def test_a_folder_that_fits_into_no_id_is_its_own_tree(home: Path, tmp_path: Path) -> None:
    odd = tmp_path / "my session"
    found = find_address(odd / "näme (1)")
    assert found.tree == odd.resolve()
    assert found.session.startswith("tree:_n_me__1_-")


@pytest.mark.parametrize(
    "name", ["my session", "été", "-x", ".hidden", "quarantine", "context.d", "a.jsonl", "x" * 150]
)
def test_a_folder_that_cannot_be_a_session_has_one_for_its_context(
    home: Path, tmp_path: Path, name: str
) -> None:
    odd = tmp_path.resolve() / name
    found = find_address(odd / "context.jsonl")
    assert (found.session, found.tree) == ("tree:_context.jsonl.steno", odd)
    assert found.context == odd / "_context.jsonl.steno" / "context.jsonl"
    assert found.is_companion
