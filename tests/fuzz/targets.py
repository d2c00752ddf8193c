"""The fuzzed entrances for bytes of others, by name."""

import importlib

from fuzz.engine import Check

NAMES = ("gate", "frames", "recovery")
"""Each is a module beside this one."""

KEPT = {
    # Each opening took back one more rewrite of a session whose present generation was gone.
    "recovery": (
        "1d9515526ca0db215181",
        "32b02d7a1daf58f2e13658b49a69af3b32a1c45bd990d49d75ce04877f2a69e9838154a0",
    ),
}
"""Cases that once broke a target, in hexadecimal."""


def load(name: str) -> Check:
    """The target of this name; it is imported only now, so that an engine can watch its code."""
    check: Check = importlib.import_module(f"fuzz.{name}").check
    return check
