"""kimi-cli's SimpleCompaction, whose result becomes one rewrite of a context kept by steno."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

from steno.adapters._compacting_file import History
from steno_protocol.errors import BadRequest

_THEIRS: Final = "kimi_cli.soul.compaction"


class SimpleCompaction:
    """Asks a model for a summary of all but the last messages.

    What is asked, and where the messages are cut, is kimi-cli's: its own class does both, so
    kimi-cli has to be installed when a method is called. Of messages that are the `history` of a
    `Context` of steno, what `compact` returns is expected to be put in place next, as kimi-cli's
    soul does it: `clear`, `write_system_prompt`, `checkpoint`, `append_message` with the messages
    of the result. These calls become one rewrite, which the last of them carries out:

    * before it the file is as it was, also after a crash, and after it the rewrite is on the disk;
    * what other processes append meanwhile, also while the model thinks, stays behind the summary;
    * a tool's result stays with its call, even if kimi-cli's cut is between them;
    * checkpoint ids go on instead of beginning anew, and the notice of the checkpoint that is set,
      if one is asked for, is the first part of the summary's message;
    * after another rewrite in between it raises `steno.Conflict`, and nothing was changed.

    Any other call in between is done as it stands, and so is then a clear before it. They stay a
    clear and appends also if there was nothing to summarise, and if the context was not restored
    although its file held something.

    Args:
        max_preserved_messages: how many of the last user and assistant messages stay as they are.
    """

    def __init__(self, max_preserved_messages: int = 2) -> None:
        self.max_preserved_messages = max_preserved_messages

    def prepare(self, messages: Sequence[Any], *, custom_instruction: str = "") -> Any:
        """What kimi-cli's class would ask, and which messages would stay."""
        return self._theirs().prepare(messages, custom_instruction=custom_instruction)

    async def compact(
        self, messages: Sequence[Any], llm: Any, *, custom_instruction: str = ""
    ) -> Any:
        """Ask the model.

        Returns:
            kimi-cli's CompactionResult. Nothing is written yet.

        Raises:
            BadRequest: kimi-cli is not installed.
            Busy: another client compacts the session.
            Besides these whatever kimi-cli's class raises; nothing was changed.
        """
        theirs = self._theirs()
        file = messages.owner if isinstance(messages, History) else None
        begun = await file.begin_compaction() if file is not None else None
        if file is None or begun is None:
            # A copy: of too few messages the result is the list itself, which a clear empties.
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
    try:
        theirs = import_module(_THEIRS).SimpleCompaction
    except ImportError:
        raise BadRequest(
            "a compaction of this kind asks what kimi-cli asks, which is not installed:"
            " pip install kimi-cli, or compact the session with steno.connect"
        ) from None
    # A program that puts this class in the place of theirs leaves theirs in the file only.
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
