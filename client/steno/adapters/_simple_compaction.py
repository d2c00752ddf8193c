"""kimi-cli's SimpleCompaction, applied as one rewrite."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec, module_from_spec
from typing import Any, Final, NamedTuple

from steno.adapters._compacting_file import History
from steno.adapters._optional import KIMI_CLI, program

_THEIRS: Final = "kimi_cli.soul.compaction"


class SimpleCompaction:
    """A summary of all but the last messages.

    kimi-cli's own class makes the request and chooses the cut, so kimi-cli has to be installed when
    a method is called. After `compact` of the `history` of a `Context` of steno, kimi-cli's soul
    puts the result in place: `clear`, `write_system_prompt`, `checkpoint`, `append_message` with
    the messages of the result. These calls become one rewrite, which the last of them carries out:

    * before it the file is as it was, also after a crash, and after it the rewrite is on the disk;
    * messages of other processes, also those written while the model thinks, stay behind the
      summary;
    * a tool's result stays with its call, even if kimi-cli's cut is between them;
    * checkpoint ids continue instead of restarting, and the notice of the new checkpoint, if it is
      requested, is the first part of the summary's message;
    * after another rewrite in between it raises `steno.Conflict`, and nothing was changed.

    Any other call in between is a change of its own, and so is a clear before it. The calls stay a
    clear and appends also if there was nothing to summarise, and if the context was not restored
    although its file had content.

    Args:
        max_preserved_messages: how many of the last user and assistant messages stay as they are.
    """

    class PrepareResult(NamedTuple):
        """The request to the model, None if there is nothing to summarise; and what stays."""

        compact_message: Any
        to_preserve: Sequence[Any]

    def __init__(self, max_preserved_messages: int = 2) -> None:
        self.max_preserved_messages = max_preserved_messages

    def prepare(self, messages: Sequence[Any], *, custom_instruction: str = "") -> PrepareResult:
        """Return the request of kimi-cli's class, and the messages that would stay."""
        prepared = self._theirs().prepare(messages, custom_instruction=custom_instruction)
        return self.PrepareResult(*prepared)

    async def compact(
        self, messages: Sequence[Any], llm: Any, *, custom_instruction: str = ""
    ) -> Any:
        """Ask the model.

        Returns:
            kimi-cli's CompactionResult. Nothing is written yet.

        Raises:
            ModuleNotFoundError: kimi-cli is not installed.
            Busy: another client compacts the session.
            All errors of kimi-cli's class pass, too; nothing was changed.
        """
        theirs = self._theirs()
        file = messages.owner if isinstance(messages, History) else None
        begun = await file.begin_compaction() if file is not None else None
        if file is None or begun is None:
            # A copy: with too few messages the result is the list itself, which a clear empties.
            return await theirs.compact(list(messages), llm, custom_instruction=custom_instruction)
        try:
            result = await theirs.compact(
                begun.messages, llm, custom_instruction=custom_instruction
            )
        except BaseException:
            await file.abandon(begun)
            raise
        await file.plan(begun, result.messages, getattr(result.usage, "output", None))
        return result

    def _theirs(self) -> Any:
        return _their_class()(self.max_preserved_messages)


def _their_class() -> Any:
    theirs = program(_THEIRS, KIMI_CLI).SimpleCompaction
    # A program that replaces kimi-cli's class by this one leaves the original in the file only.
    return _class_in_file() if issubclass(theirs, SimpleCompaction) else theirs


@cache
def _class_in_file() -> Any:
    spec = find_spec(_THEIRS)
    # It was imported before.
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SimpleCompaction
