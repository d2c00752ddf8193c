"""The subcommand that lets a model compact a session, or with --watch each that needs it."""

from argparse import Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steno.cli.connection import how_to_connect
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.output import Output
from steno.cli.render.wording import count, number

if TYPE_CHECKING:
    from steno._async.client import Client
    from steno._sansio.summaries import Summarize
    from steno.cli.compaction.watch import Watch


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a session is to be compacted: so many tokens of what its model can take."""

    max_context_size: int
    reserved: int
    ratio: float

    def is_due(self, tokens: int) -> bool:
        """True when a context of `tokens` is full enough."""
        from steno._sansio.summaries import should_compact  # noqa: PLC0415

        return should_compact(tokens, self.max_context_size, self.reserved, self.ratio)


def compact(options: Namespace, output: Output) -> int:
    """Compact one session, or watch over many."""
    trigger = _trigger(options)
    _check(options, trigger)
    # Imported only now: an event loop and an HTTP client, which no other command pays for.
    from steno.cli.signals import run  # noqa: PLC0415

    try:
        summarize = _summarizer(options, output)
    except ModuleNotFoundError as error:
        if error.name != "httpx2":
            raise
        output.failure(str(error))
        return Exit.FAILED
    if options.watch:
        assert trigger is not None
        run(lambda: _watch(options, output, summarize, trigger))
        # A signal is how a worker is meant to end.
        return Exit.DONE
    ended = run(lambda: _compact_one(options, output, summarize, trigger))
    return Exit.INTERRUPTED if ended is None else ended


async def _compact_one(
    options: Namespace, output: Output, summarize: "Summarize", trigger: Trigger | None
) -> int:
    from steno._async.client import connect  # noqa: PLC0415
    from steno.cli.compaction.progress import Progress, compacted_in_words  # noqa: PLC0415

    async with connect(**how_to_connect(options)) as client:
        session = client.session(options.session)
        stat = await session.stat()
        tokens = stat.token_count_with_pending
        if trigger is not None and not trigger.is_due(tokens):
            most = number(trigger.max_context_size)
            return _nothing(output, stat.session, f"{number(tokens)} of {most} tokens: not yet due")
        progress = Progress(output, options.session, f"{options.model} for a summary")
        output.say(f"{options.session}: {count(tokens, 'token')}, reading")
        done = await session.compact(
            progress.around(summarize),
            preserve=options.preserve,
            instruction=options.instruction,
            why=options.why,
            key=options.key,
        )
    if done is None:
        return _nothing(output, options.session, "there are too few messages to compact")
    if output.as_json:
        output.document(contract.compacted(options.session, done))
        return Exit.DONE
    output.write(str(done.ack.head))
    output.say(f"{options.session}: {compacted_in_words(done.messages, done.tokens)}")
    return Exit.DONE


async def _watch(
    options: Namespace, output: Output, summarize: "Summarize", trigger: Trigger
) -> None:
    from steno._async.client import connect  # noqa: PLC0415

    async with connect(**how_to_connect(options)) as client:
        await _worker(client, options, output, summarize, trigger).run()


def _worker(
    client: "Client",
    options: Namespace,
    output: Output,
    summarize: "Summarize",
    trigger: Trigger,
) -> "Watch":
    from steno.cli.compaction.watch import Rule, Watch  # noqa: PLC0415

    rule = Rule(
        prefix=options.session or "",
        is_due=trigger.is_due,
        preserve=options.preserve,
        instruction=options.instruction,
        why=options.why,
        interval_s=options.interval,
    )
    return Watch(client, summarize, rule, output)


def _nothing(output: Output, session: str, why: str) -> int:
    if output.as_json:
        output.document(contract.compacted(session, None, why))
    else:
        output.say(f"{session}: nothing to do, {why}")
    return Exit.DONE


def _summarizer(options: Namespace, output: Output) -> "Summarize":
    from steno.llm import summarizer  # noqa: PLC0415

    return summarizer(
        provider=options.provider,
        model=options.model,
        base_url=options.base_url,
        max_output_tokens=options.max_output_tokens,
        deadline=options.deadline,
        tell=output.say,
    )


def _trigger(options: Namespace) -> Trigger | None:
    if options.max_context_size is None:
        return None
    return Trigger(options.max_context_size, options.reserved, options.ratio)


def _check(options: Namespace, trigger: Trigger | None) -> None:
    if options.session is None and not options.watch:
        raise WrongUsage("which session? Give SESSION, or --watch for all")
    if options.watch and trigger is None:
        raise WrongUsage(
            "--watch needs --max-context-size: how many tokens the agents' model takes"
        )
    if options.watch and options.key is not None:
        raise WrongUsage("--key names one compaction, and --watch makes many: leave it out")
    if trigger is not None and trigger.reserved >= trigger.max_context_size:
        raise WrongUsage(
            f"--reserved {trigger.reserved} is all of --max-context-size"
            f" {trigger.max_context_size}, so that every session would always be due: reserve less"
        )
