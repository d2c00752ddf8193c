"""A conversation in readable form, in the format that suits the output."""

import shutil

from steno_cli.command_limits import RENDER_S_MAX
from steno_cli.render.output import Output, has_colours, styled
from steno_present.conversation import Conversation
from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command


def conversation_for(
    output: Output, form: str | None = None, *, full: bool = False
) -> Conversation:
    """The rendering in the requested format, or in the one that suits the output.

    Args:
        output: of the command.
        form: terminal or plain; None for the one that suits.
        full: fold nothing.

    Raises:
        BadRequest: a package for the requested format is not installed.
    """
    suits = output.is_terminal and has_colours()
    if form == "terminal" or (form is None and suits):
        # Imported here: rich takes longer to import than other commands to run.
        try:
            from steno_cli.render.rich_markup import RichMarkup, time_limit  # noqa: PLC0415
        except ModuleNotFoundError as error:
            if form is not None:
                raise BadRequest(
                    f"--format terminal needs {error.name}: install it with"
                    f" `{extra_command('terminal')}`, or give --format plain"
                ) from None
        else:
            markup = RichMarkup(has_colours=has_colours(), limit=lambda: time_limit(RENDER_S_MAX))
            # A pipe gets the colours, too, if the format was asked for.
            style = styled if has_colours() else output.style
            width = shutil.get_terminal_size().columns
            return Conversation(width, style, full=full, markup=markup)
    return Conversation(output.width, output.style, full=full)
