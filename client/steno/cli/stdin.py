"""An argument whose `-` stands for what comes on stdin."""

import sys
from argparse import Namespace


def text_or_stdin(options: Namespace, name: str) -> str:
    """The text of an argument, stdin for `-`; read once, however often it is asked for."""
    text: str = getattr(options, name)
    if text == "-":
        text = sys.stdin.read()
        setattr(options, name, text)
    return text
