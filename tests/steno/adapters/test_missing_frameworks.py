"""Adapters of frameworks that are not installed: they are imported, and name the command."""

import json
import subprocess
import sys

NEEDS = {
    "claude_agent_sdk": (
        "claude_agent_sdk",
        "StenoSessionStore(None)",
        "'stenod[claude-agent-sdk]'",
    ),
    "agent_framework": (
        "agent_framework",
        "StenoHistoryProvider(None)",
        "'stenod[agent-framework]'",
    ),
    "google_adk": ("google.adk", "StenoSessionService(None)", "'stenod[google-adk]'"),
    "kimi": ("kimi_cli", "SimpleCompaction().prepare([])", "kimi-cli==1.52.0"),
    "langgraph": ("langgraph", "StenoSaver(None)", "'stenod[langgraph]'"),
    "llama_index": ("llama_index", "StenoChatStore(None)", "'stenod[llama-index]'"),
    "openai_agents": (
        "agents",
        "StenoSession('talk', None, {'limit': 1})",
        "'stenod[openai-agents]'",
    ),
    "pydantic_ai": ("pydantic_ai", "StenoConversationStore(None)", "'stenod[pydantic-ai]'"),
    "strands": ("strands", "StenoSessionRepository(None)", "'stenod[strands-agents]'"),
}
"""An adapter: the package of its framework, a call that needs it, and what installs it."""

PROGRAM = """
import importlib, json, sys
calls = json.loads(sys.argv[1])
sys.modules.update({package: None for _, package, _ in calls})
for adapter, _, call in calls:
    module = importlib.import_module(f"steno.adapters.{adapter}")
    try:
        eval(call, vars(module))
    except ModuleNotFoundError as error:
        print(adapter, error)
"""


def test_an_adapter_without_its_framework_names_the_command() -> None:
    calls = [(adapter, package, call) for adapter, (package, call, _) in NEEDS.items()]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(calls)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = dict(line.split(maxsplit=1) for line in ran.stdout.splitlines())
    assert {*said} == {*NEEDS}, ran.stderr
    for adapter, (_, _, installed) in NEEDS.items():
        assert f"pip install {installed}`" in said[adapter]
