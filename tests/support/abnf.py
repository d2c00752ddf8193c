"""An ABNF grammar (RFC 5234) as regular expressions."""

import re
from collections.abc import Iterator

_CORE = {"ALPHA": "[A-Za-z]", "DIGIT": "[0-9]", "HEXDIG": "[0-9A-F]"}
_TOKEN = re.compile(
    r'\s*(?:(%s)?"([^"]*)"|%x([0-9A-F]{2})(?:-([0-9A-F]{2}))?|([A-Za-z][A-Za-z0-9-]*)'
    r"|([0-9]*)\*([0-9]*)|([()\[\]/]))"
)


def rules_of(text: str) -> dict[str, str]:
    """The right side of each rule by its name; a semicolon begins a comment."""
    lines = [line.split(";")[0].rstrip() for line in text.splitlines()]
    pairs = (line.split("=", 1) for line in lines if line)
    rules: dict[str, str] = {}
    for name, definition in pairs:
        assert name.strip() not in rules, f"the rule {name.strip()!r} is there twice"
        rules[name.strip()] = definition.strip()
    return rules


def names_in(definition: str) -> set[str]:
    """The rules that a definition uses; the roles C: and S: are no part of a name."""
    bare = re.sub(r'%s|%x[0-9A-F-]+|"[^"]*"|\b[CS]:', " ", definition)
    return set(re.findall(r"[A-Za-z][A-Za-z0-9-]*", bare))


def pattern_of(rules: dict[str, str], name: str) -> str:
    """The regular expression of one rule with text terminals."""
    return _alternatives(iter(_TOKEN.finditer(rules[name])), rules)


def _alternatives(tokens: Iterator[re.Match[str]], rules: dict[str, str]) -> str:
    """Read up to the bracket that closes this group, or to the end."""
    pattern, repeat = "", ""
    for token in tokens:
        _, literal, first, last, name, least, most, bracket = token.groups()
        if most is not None:
            repeat = f"{{{least or 0},{most}}}"
            continue
        if bracket in (")", "]"):
            break
        if bracket == "/":
            pattern += "|"
            continue
        if bracket is not None:
            part = f"(?:{_alternatives(tokens, rules)}){'?' if bracket == '[' else ''}"
        elif literal is not None:
            part = re.escape(literal)
        elif first is not None:
            part = rf"[\x{first}-\x{last or first}]"
        else:
            part = _CORE.get(name) or f"(?:{pattern_of(rules, name)})"
        pattern, repeat = pattern + part + repeat, ""
    return pattern
