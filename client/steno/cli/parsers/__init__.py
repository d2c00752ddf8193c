"""The subcommands of `steno`, a small module a group: `add_<command>` there makes that one.

`steno.cli.parser` names the groups and what is in each, so that a call loads one of them only.
A module here describes: what carries a command out is named as text, `module:function`.
"""
