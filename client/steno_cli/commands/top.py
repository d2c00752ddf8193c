"""`steno top`: a live screen of a busy daemon."""

import os
from argparse import ArgumentTypeError, Namespace
from importlib import import_module
from typing import Final

import anyio

from steno import connect
from steno_cli.arguments import argument, command, flag, number_from, seconds
from steno_cli.command_limits import TOP_INTERVAL_S, TOP_INTERVAL_S_MIN, TOP_SESSIONS_MAX
from steno_cli.connection import how_to_connect
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.top.activity import SORTS, Report, activity
from steno_cli.top.source import Source
from steno_present.contract import document
from steno_protocol.errors import BadRequest, Unreachable
from steno_protocol.installation import extra_command

_PLAIN_TERMINALS: Final = frozenset({"dumb", "unknown"})
"""Values of TERM for which rich draws no live screen."""


def _interval(text: str) -> float:
    """The type of the interval."""
    found = seconds(text)
    if found < TOP_INTERVAL_S_MIN:
        raise ArgumentTypeError(f"{text!r} is less than {TOP_INTERVAL_S_MIN:g} seconds")
    return found


@command(
    "top",
    "Shows rates, syncs, queue, clients and errors of the daemon, the open sessions and the"
    " clients, the busiest first. A rate is the difference between two reports of the daemon."
    " Keys: s changes the order of the sessions, q or Ctrl-C quits. Starts no daemon, and waits"
    " for one that ends meanwhile. Needs the extra `stenod[terminal]`.",
    argument(
        "--interval", metavar="SECONDS", type=_interval, default=TOP_INTERVAL_S,
        help=f"seconds between two reports (default: {TOP_INTERVAL_S:g})",
    ),
    argument(
        "--sort", choices=tuple(SORTS), default="rate",
        help="the order of the sessions: rate (default: records a second), bytes, queue and"
        " followers from the largest down; changed from the latest; id from A to Z",
    ),
    argument(
        "-n", "--lines", metavar="N", type=number_from(1), default=None,
        help=f"at most N sessions (default: as many as fit; with --once {TOP_SESSIONS_MAX})",
    ),
    flag("--once", help="print one screen after one interval, and end"),
    example="steno top\nsteno top --interval 0.5 --sort queue\nsteno top --once -n 5",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Show the screen until a key or a signal ends it."""
    is_live = not (options.once or output.as_json)
    if is_live and not (output.is_terminal and os.environ.get("TERM") not in _PLAIN_TERMINALS):
        raise WrongUsage(
            "stdout is no terminal that can be drawn on: add --once to print one screen"
        )
    if not output.as_json:
        try:
            import_module("steno_cli.top.watch")
        except ModuleNotFoundError as error:
            raise BadRequest(
                f"`steno top` needs {error.name}: install it with `{extra_command('terminal')}`"
            ) from None
    return anyio.run(_top, options, output)


async def _top(options: Namespace, output: Output) -> int:
    # A daemon is never started: a watcher must not change what it watches.
    async with connect(**how_to_connect(options, spawn=False), spawn=False) as client:
        source = Source(client)
        if output.as_json:
            return await _print_documents(options, output, source)
        if options.once:
            return await _print_once(options, output, source)
        # Imported here: only a live screen needs a terminal.
        from steno_cli.top.watch import Watch  # noqa: PLC0415

        watch = Watch(source, output, options.interval, options.sort, options.lines)
        return await watch.run()


async def _print_once(options: Namespace, output: Output, source: Source) -> int:
    from steno_cli.top.screen import Screen, new_console  # noqa: PLC0415  # needs rich

    before, after = await _answer(source, 0), await _answer(source, options.interval)
    screen = Screen(
        source.daemon, activity(before, after, options.sort), after.stats, source.titles,
        order=options.sort, sessions_max=options.lines or TOP_SESSIONS_MAX,
        width=output.width, height=None, fitted=output.fitted,
    )  # fmt: skip
    await source.learn_titles(row.session for row in screen.sessions)
    console = new_console()
    if output.width is None:
        # A pipe gets whole texts.
        console.width = sum(len(title) for title in source.titles.values()) + 4096
    with console.capture() as captured:
        console.print(screen)
    for line in captured.get().splitlines():
        output.write(line.rstrip())
    return Exit.DONE


async def _print_documents(options: Namespace, output: Output, source: Source) -> int:
    """Print a document after each interval; with --once only the first."""
    before = await _answer(source, 0)
    while True:
        after = await _answer(source, options.interval)
        now = activity(before, after, options.sort)
        shown = document(now)
        output.document({**shown, "sessions": shown["sessions"][: options.lines]})
        output.flush()
        if options.once:
            return Exit.DONE
        before = after


async def _answer(source: Source, delay_s: float) -> Report:
    """Return a report after a while.

    Raises:
        Unreachable: the daemon ended meanwhile.
    """
    await anyio.sleep(delay_s)
    report = await source.report()
    if report is None:
        raise Unreachable("the daemon ended or does not answer: `steno doctor` shows its state")
    return report
