"""Transcripts of other agents, converted to the messages of a context; pure.

transcript        the interface of a reader of one format
claude_code       the files of Claude Code's project folders
codex             the rollouts of Codex
copilot_cli       the events of GitHub Copilot CLI
gemini_cli        the chats of Gemini CLI
kimi_code         the wire files of Kimi Code
opencode          the sessions in the database of opencode
pi                the sessions of pi
qwen_code         the chats of Qwen Code
gemini_contents   the contents of Google's interface, in files of Gemini CLI and Qwen Code
detection         the format of a file, from its records
following         a transcript that grows: its place, and the messages that it adds
row_log           the log of a table whose rows change
json_lines        the JSON objects in a line, damaged lines included
tree              branches of records that name their parents
tree_transcript   a transcript that is a tree, with compactions in it
places            the folders in which the programs keep their transcripts
prompts           the words in a prompt that a person typed
writers           the way back: sessions as the files of these programs
limits            bounds
"""
