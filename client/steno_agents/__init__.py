"""Transcripts of other agents: their conversations, origins and tokens.

All of it is pure, but `origin` and `ledger`, which read sessions.

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
origin            the program and file of a session, and how the program resumes it
traces            what a record says beside the conversation: directory, model, tokens
spending          the tokens of one session by day and model
ledger            the tokens of all sessions of a root
prices            prices of models, from a file that people write
usage_table       tokens and cost by session, program, model and day
places            the folders in which the programs keep their transcripts
prompts           the words in a prompt that a person typed
writers           the way back: sessions as the files of these programs
limits            bounds
"""
