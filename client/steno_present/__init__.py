"""Records as text, Markdown, a tree and the documents of `--json`; pure.

The command, the viewer and the MCP server show sessions with it. It uses the library's values, and
knows none of its users.

contract       the documents of `--json`
conversation   a session as a conversation of lines
markdown       a session as Markdown
tree           a value as an indented tree
open_calls     calls of tools without a result
messages       what a record says: role, texts, calls, times
repairs        what the daemon changed when it opened a session
lexers         the lexer for a language's name
wording        numbers, sizes and times in words
safe_text      text that cannot control a terminal
limits         the bounds of what is shown
"""
