"""The programs whose sessions steno writes, by the names of the formats."""

from typing import Final

from steno_agents.writers.claude_code import ClaudeCodeWriter
from steno_agents.writers.codex import CodexWriter
from steno_agents.writers.kimi_code import KimiCodeWriter
from steno_agents.writers.opencode import OpencodeWriter
from steno_agents.writers.pi import PiWriter
from steno_agents.writers.qwen_code import QwenCodeWriter
from steno_agents.writers.writer import Writer

WRITERS: Final[dict[str, Writer]] = {
    "claude-code": ClaudeCodeWriter(),
    "codex": CodexWriter(),
    "kimi-code": KimiCodeWriter(),
    "opencode": OpencodeWriter(),
    "pi": PiWriter(),
    "qwen": QwenCodeWriter(),
}
"""Each writer by the name of its format."""
