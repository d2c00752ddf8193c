"""`steno compact`: sessions summarised by a model."""

from argparse import Namespace

from steno import connect
from steno.llm.limits import MODEL_DEADLINE_S, MODEL_OUTPUT_TOKENS_MAX
from steno.parts import Summarize, should_compact
from steno_cli.arguments import (
    argument,
    between,
    command,
    default,
    flag,
    key_option,
    number_from,
    number_where,
    optional_argument,
    seconds,
    titled,
    why_option,
)
from steno_cli.command_limits import WATCH_INTERVAL_S
from steno_cli.compact.worker import IsDue, Worker, about, run_until_signal, with_progress
from steno_cli.connection import how_to_connect, say_repaired
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_present import contract
from steno_present.wording import count, number
from steno_protocol import limits


@command(
    "compact",
    "Other clients can keep writing meanwhile. Prints the new head. The summarised records"
    " stay in a past generation; `steno restore` brings them back. The API key comes from"
    " STENO_LLM_API_KEY, OPENAI_API_KEY or ANTHROPIC_API_KEY, and is sent only over https or"
    " to this machine. With --max-context-size, only a session that is full enough is"
    " compacted. With --watch, the command runs until a signal and compacts each session"
    " whose id starts with SESSION once it is full enough; sessions of a mount only if"
    " SESSION names the mount.",
    optional_argument("session", str, "a session id or a unique prefix"),
    default(by_prefix=True),
    titled(
        "the model that summarises",
        argument(
            "--model", metavar="NAME", required=True, help="the model's name at the provider"
        ),
        argument(
            "--provider", choices=("openai", "anthropic"), default="openai",
            help="the API of the server: chat completions (openai, default) or messages"
            " (anthropic)",
        ),
        argument(
            "--base-url", metavar="URL", help="the URL of the server (default: the provider's)"
        ),
        argument(
            "--max-output-tokens", metavar="N", type=number_from(1),
            default=MODEL_OUTPUT_TOKENS_MAX,
            help="maximum tokens of a summary, thoughts included (default:"
            f" {MODEL_OUTPUT_TOKENS_MAX})",
        ),
        argument(
            "--deadline", metavar="SECONDS", type=seconds, default=MODEL_DEADLINE_S,
            help=f"deadline for one summary, retries included (default: {MODEL_DEADLINE_S:g})",
        ),
    ),
    titled(
        "when a session is full enough",
        argument(
            "--max-context-size", metavar="N", type=number_from(1),
            help="context size of the agents' model, in tokens",
        ),
        argument(
            "--reserved", metavar="N", type=number_from(0), default=50_000,
            help="tokens to keep free (default: 50000)",
        ),
        argument(
            "--ratio", metavar="R", default=0.85,
            type=number_where(lambda found: 0 < found <= 1, "is not a number above 0 and up to 1"),
            help="fraction of the context that may be full (default: 0.85)",
        ),
        flag("--watch", help="compact all sessions as they fill, until a signal"),
        argument(
            "--interval", metavar="SECONDS", type=seconds, default=WATCH_INTERVAL_S,
            help=f"interval between checks of --watch (default: {WATCH_INTERVAL_S:g})",
        ),
    ),
    argument(
        "--preserve", metavar="N", type=between(1, limits.PRESERVED_MESSAGES_MAX), default=2,
        help="number of last messages to keep, 1 to"
        f" {limits.PRESERVED_MESSAGES_MAX} (default: 2)",
    ),
    argument("--instruction", metavar="TEXT", help="an instruction for the summary"),
    why_option, key_option(),
    example="steno compact demo --model qwen3 --base-url http://127.0.0.1:8080/v1\n"
    "steno compact --watch --model qwen3 --base-url http://127.0.0.1:8080/v1"
    " --max-context-size 200000",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Compact one session, or with --watch each one as it fills."""
    _check(options)
    is_due = _trigger(options)
    try:
        summarize = _summarizer(options, output)
    except ModuleNotFoundError as error:
        if error.name != "httpx2":
            raise
        output.failure(str(error))
        return Exit.FAILED
    if options.watch:
        assert is_due is not None
        run_until_signal(lambda: _watch(options, output, summarize, is_due))
        # A signal is the regular end of a worker.
        return Exit.DONE
    ended = run_until_signal(lambda: _compact_one(options, output, summarize, is_due))
    return Exit.INTERRUPTED if ended is None else ended


async def _compact_one(
    options: Namespace, output: Output, summarize: Summarize, is_due: IsDue | None
) -> int:
    async with connect(**how_to_connect(options)) as client:
        session = client.session(options.session)
        stat = await session.stat()
        tokens = stat.token_count_with_pending
        if is_due is not None and not is_due(tokens):
            most = number(options.max_context_size)
            return _nothing(output, stat.session, f"{number(tokens)} of {most} tokens: not yet due")
        output.say(f"{options.session}: {count(tokens, 'token')}, reading")
        done = await session.compact(
            with_progress(summarize, output, options.session, options.model),
            preserve=options.preserve,
            instruction=options.instruction,
            why=options.why,
            key=options.key,
        )
        for repaired in session.repaired:
            say_repaired(output, repaired)
    if done is None:
        return _nothing(output, options.session, "there are too few messages to compact")
    document = contract.compacted(options.session, done)
    return output.answer(document, str(done.ack.head), message=about(options.session, done))


async def _watch(options: Namespace, output: Output, summarize: Summarize, is_due: IsDue) -> None:
    async with connect(**how_to_connect(options)) as client:
        await Worker(client, summarize, is_due, options, output).run()


def _nothing(output: Output, session: str, why: str) -> int:
    document = contract.compacted(session, None, why)
    return output.answer(document, message=f"{session}: nothing to do, {why}")


def _summarizer(options: Namespace, output: Output) -> Summarize:
    # Imported here: it needs the extra `llm`, and `steno compact --help` does not.
    from steno.llm import summarizer  # noqa: PLC0415

    return summarizer(
        provider=options.provider,
        model=options.model,
        base_url=options.base_url,
        max_output_tokens=options.max_output_tokens,
        deadline=options.deadline,
        tell=output.say,
    )


def _trigger(options: Namespace) -> IsDue | None:
    """Whether a session is full enough; None for one that is compacted in any case."""
    size, reserved, ratio = options.max_context_size, options.reserved, options.ratio
    if size is None:
        return None
    return lambda tokens: should_compact(tokens, size, reserved, ratio)


def _check(options: Namespace) -> None:
    size = options.max_context_size
    if options.session is None and not options.watch:
        raise WrongUsage("the session is missing: give SESSION, or --watch for all")
    if options.watch and size is None:
        raise WrongUsage(
            "--watch needs --max-context-size, the context size of the agents' model in tokens"
        )
    if options.watch and options.key is not None:
        raise WrongUsage("--key identifies one compaction, and --watch makes many: leave it out")
    if size is not None and options.reserved >= size:
        raise WrongUsage(
            f"--reserved {options.reserved} leaves nothing of --max-context-size {size}, so that"
            " every session is always due: reserve less"
        )
