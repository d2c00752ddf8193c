"""Sessions as the files of other agents, which then resume them; pure: messages in, bytes out.

programs      the table of the programs
writer        the interface of a writer for one program
turns         the messages of a context as turns that any model takes
claude_code   a file of Claude Code's project folders
codex         a rollout of Codex
kimi_code     the folder of a session of Kimi Code
opencode      a file that `opencode import` reads
pi            a session of pi
qwen_code     a chat of Qwen Code
"""
