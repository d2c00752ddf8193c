"""The command line of what lets a model compact sessions."""

import argparse

from steno.cli.arguments import (
    Subcommands,
    between,
    command,
    key,
    number_from,
    optional_argument,
    seconds,
    why,
)
from steno.llm_limits import MODEL_DEADLINE_S, MODEL_OUTPUT_TOKENS_MAX, WATCH_INTERVAL_S
from steno_protocol import limits


def add_compact(commands: Subcommands) -> None:
    parser = command(
        commands, "compact", "compact:compact",
        "let a model put all but the last messages into fewer words",
        "Others may go on writing meanwhile. Prints the new head. What was summarised can be read,"
        " and brought back with `steno restore`. The key is taken from STENO_LLM_API_KEY, else"
        " from OPENAI_API_KEY or ANTHROPIC_API_KEY, and goes over https or to this machine only."
        " With --max-context-size only a session that is full enough is compacted. With --watch it"
        " runs until it is told to end, and compacts each session that SESSION is the beginning of"
        " once it is full enough; those of a mount only when SESSION names it.",
        example="steno compact demo --model qwen3 --base-url http://127.0.0.1:8080/v1\n"
        "steno compact --watch --model qwen3 --base-url http://127.0.0.1:8080/v1"
        " --max-context-size 200000",
    )  # fmt: skip
    optional_argument(parser, "session", str, "its id, or what only one begins with")
    parser.set_defaults(by_prefix=True)
    _add_model(parser)
    _add_trigger(parser)
    parser.add_argument(
        "--preserve", metavar="N", type=_preserve, default=2,
        help="how many of the last messages stay as they are, 1 to"
        f" {limits.PRESERVED_MESSAGES_MAX} (default: 2)",
    )  # fmt: skip
    parser.add_argument(
        "--instruction", metavar="TEXT", help="what the summary has to heed before all else"
    )
    why(parser)
    key(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model that summarises")
    group.add_argument("--model", metavar="NAME", required=True, help="its name at the provider")
    group.add_argument(
        "--provider", choices=("openai", "anthropic"), default="openai",
        help="what its server speaks: chat completions (default) or messages",
    )  # fmt: skip
    group.add_argument(
        "--base-url", metavar="URL", help="where its server is (default: that of the provider)"
    )
    group.add_argument(
        "--max-output-tokens", metavar="N", type=number_from(1),
        default=MODEL_OUTPUT_TOKENS_MAX,
        help=f"the longest summary, thoughts included (default: {MODEL_OUTPUT_TOKENS_MAX})",
    )  # fmt: skip
    group.add_argument(
        "--deadline", metavar="SECONDS", type=seconds, default=MODEL_DEADLINE_S,
        help=f"for one summary, repeats included (default: {MODEL_DEADLINE_S:g})",
    )  # fmt: skip


def _add_trigger(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("when a session is full enough")
    group.add_argument(
        "--max-context-size", metavar="N", type=number_from(1),
        help="tokens that the model of the agents takes",
    )  # fmt: skip
    group.add_argument(
        "--reserved", metavar="N", type=number_from(0), default=50_000,
        help="tokens of it that are to stay free (default: 50000)",
    )  # fmt: skip
    group.add_argument(
        "--ratio", metavar="R", type=_ratio, default=0.85,
        help="the part of it that may be full (default: 0.85)",
    )  # fmt: skip
    group.add_argument(
        "--watch", action="store_true", help="look after all sessions, until a signal comes"
    )
    group.add_argument(
        "--interval", metavar="SECONDS", type=seconds, default=WATCH_INTERVAL_S,
        help=f"how often --watch looks which grew (default: {WATCH_INTERVAL_S:g})",
    )  # fmt: skip


def _preserve(text: str) -> int:
    return between(text, 1, limits.PRESERVED_MESSAGES_MAX)


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not 0 < ratio <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1")
    return ratio
