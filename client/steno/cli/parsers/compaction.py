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
        "summarise all but the last messages with a model",
        "Other clients can keep writing meanwhile. Prints the new head. The summarised records"
        " stay in a past generation; `steno restore` brings them back. The API key comes from"
        " STENO_LLM_API_KEY, OPENAI_API_KEY or ANTHROPIC_API_KEY, and is sent only over https or"
        " to this machine. With --max-context-size, only a session that is full enough is"
        " compacted. With --watch, the command runs until a signal and compacts each session"
        " whose id starts with SESSION once it is full enough; sessions of a mount only if"
        " SESSION names the mount.",
        example="steno compact demo --model qwen3 --base-url http://127.0.0.1:8080/v1\n"
        "steno compact --watch --model qwen3 --base-url http://127.0.0.1:8080/v1"
        " --max-context-size 200000",
    )  # fmt: skip
    optional_argument(parser, "session", str, "a session id or a unique prefix")
    parser.set_defaults(by_prefix=True)
    _add_model(parser)
    _add_trigger(parser)
    parser.add_argument(
        "--preserve", metavar="N", type=_preserve, default=2,
        help="number of last messages to keep, 1 to"
        f" {limits.PRESERVED_MESSAGES_MAX} (default: 2)",
    )  # fmt: skip
    parser.add_argument("--instruction", metavar="TEXT", help="an instruction for the summary")
    why(parser)
    key(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model that summarises")
    group.add_argument(
        "--model", metavar="NAME", required=True, help="the model's name at the provider"
    )
    group.add_argument(
        "--provider", choices=("openai", "anthropic"), default="openai",
        help="the API of the server: chat completions (openai, default) or messages (anthropic)",
    )  # fmt: skip
    group.add_argument(
        "--base-url", metavar="URL", help="the URL of the server (default: the provider's)"
    )
    group.add_argument(
        "--max-output-tokens", metavar="N", type=number_from(1),
        default=MODEL_OUTPUT_TOKENS_MAX,
        help=f"maximum tokens of a summary, thoughts included (default: {MODEL_OUTPUT_TOKENS_MAX})",
    )  # fmt: skip
    group.add_argument(
        "--deadline", metavar="SECONDS", type=seconds, default=MODEL_DEADLINE_S,
        help=f"deadline for one summary, retries included (default: {MODEL_DEADLINE_S:g})",
    )  # fmt: skip


def _add_trigger(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("when a session is full enough")
    group.add_argument(
        "--max-context-size", metavar="N", type=number_from(1),
        help="context size of the agents' model, in tokens",
    )  # fmt: skip
    group.add_argument(
        "--reserved", metavar="N", type=number_from(0), default=50_000,
        help="tokens to keep free (default: 50000)",
    )  # fmt: skip
    group.add_argument(
        "--ratio", metavar="R", type=_ratio, default=0.85,
        help="fraction of the context that may be full (default: 0.85)",
    )  # fmt: skip
    group.add_argument(
        "--watch", action="store_true", help="compact all sessions as they fill, until a signal"
    )
    group.add_argument(
        "--interval", metavar="SECONDS", type=seconds, default=WATCH_INTERVAL_S,
        help=f"interval between checks of --watch (default: {WATCH_INTERVAL_S:g})",
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
