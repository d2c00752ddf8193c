"""kimi-cli's Context with steno as the one writer.

    from steno.adapters.kimi import Context           in place of kimi_cli.soul.context
    from steno.adapters.kimi import WireFile          in place of kimi_cli.wire.file
    from steno.adapters.kimi import DenwaRenji        in place of kimi_cli.soul.denwarenji
    from steno.adapters.kimi import SimpleCompaction  in place of kimi_cli.soul.compaction

Methods and file are the same; these differences to kimi-cli 1.52 are deliberate:

* The file is written first and the memory second, so a failed call has changed neither.
* Lines of other processes are taken in, in their place, at the next call; checkpoint ids are unique
  among all processes; a revert moves lines by one rename.
* A system prompt that is put before existing lines rotates the file, and replaces the prompt in
  those lines.
* A message may be a plain dict. A line with the role `developer` is shown as a `system` message,
  and a revert keeps it; kimi-cli skips and drops it.
* `checkpoint` returns the checkpoint. `revert_to` takes it, too, and refuses it if another
  checkpoint has its id by then. `revert_to` refuses negative ids. Control records are compact JSON.
* A call beyond steno's bounds is refused before anything is written: more than 4 096 messages in a
  call, a message of more than 16 MiB, a token count that is negative, above 2**53 or no integer. A
  file that is a symbolic link is not followed.
* After a `SimpleCompaction` of a context's history the next clear, with the prompt, the checkpoint
  and the compacted messages, is one rewrite, done by the call that appends those messages: see
  `SimpleCompaction`. Without it, these calls stay a clear and appends: a clear alone does not show
  that a summary will follow, nor which lines it summarises.
* With a file a D-Mail belongs to the session, not to the process: see `DenwaRenji`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steno.adapters._compacting_file import CompactingFile
from steno.adapters._denwa_renji import DenwaRenji, DenwaRenjiError
from steno.adapters._simple_compaction import SimpleCompaction
from steno.adapters._transcript import Appended
from steno.adapters._wire_file import WireFile
from steno.parts import CheckpointLike, in_thread, target_of
from steno_protocol.errors import NotFound

__all__ = ["Context", "DenwaRenji", "DenwaRenjiError", "SimpleCompaction", "WireFile"]


class Context:
    """The conversation in the file at `file_backend`.

    Nothing is read or written before the first call. When a call that changes something returns,
    its bytes are on the disk. Calls of several tasks are carried out one after the other.

    Args:
        file_backend: the file; its folder has to exist before anything is written. A relative path
            is taken in the present working directory.
        message_type: the class of the messages from the file, a pydantic model; None: the class of
            the messages that were appended here (of a class and its subclass the former), and
            before the first of them kosong's.
    """

    def __init__(
        self, file_backend: str | os.PathLike[str], *, message_type: type | None = None
    ) -> None:
        self._path = Path(file_backend)
        self._followed = CompactingFile(self._path, message_type)
        self._transcript = self._followed.transcript

    @property
    def history(self) -> Sequence[Any]:
        """The messages, as far as this object has read or written them."""
        return self._transcript.messages

    @property
    def token_count(self) -> int:
        """The last token count, 0 before the first."""
        return self._transcript.token_count

    @property
    def token_count_with_pending(self) -> int:
        """The token count plus an estimate of the messages that no model has counted yet."""
        return self._transcript.token_count + self._transcript.pending

    @property
    def n_checkpoints(self) -> int:
        """The id that the next checkpoint gets."""
        return self._transcript.next_checkpoint

    @property
    def system_prompt(self) -> str | None:
        """The system prompt, None when there is none."""
        return self._transcript.system_prompt

    @property
    def file_backend(self) -> Path:
        """The file, as it was given."""
        return self._path

    async def restore(self) -> bool:
        """Load the file; a last record without its newline gets one.

        Returns:
            False when there is no file, or an empty one.

        Raises:
            RuntimeError: there is a history here already.
        """
        async with self._followed.lock:
            if self._transcript.messages:
                raise RuntimeError(
                    f"the context of {self._path} holds messages already: restore() is for a new"
                    " object"
                )
            if not await in_thread(lambda: self._followed.file.has_content):
                self._followed.find_empty()
                return False
            await self._followed.load()
            return True

    async def write_system_prompt(self, prompt: str) -> None:
        """Put the system prompt first, before the lines of the file."""
        async with self._followed.lock:
            await self._followed.write_system_prompt(prompt)

    async def checkpoint(self, add_user_message: bool) -> CheckpointLike:
        """Append a checkpoint, and on request a message that shows it to the model.

        Returns:
            The checkpoint, which `revert_to` takes; for the checkpoint of a compaction its id.
        """
        async with self._followed.lock:
            return await self._followed.checkpoint(add_user_message=add_user_message)

    async def revert_to(self, checkpoint_id: CheckpointLike) -> None:
        """Drop a checkpoint and everything after it; the rotated file keeps the dropped lines.

        Args:
            checkpoint_id: an id, which a later checkpoint may have got again since, as in kimi-cli;
                or what `checkpoint` returned, which names only that checkpoint.

        Raises:
            ValueError: there is no such checkpoint.
            Conflict: another checkpoint has this id now; nothing was changed.
            RuntimeError: the folder of the file is missing.
        """
        async with self._followed.lock:
            number = target_of(checkpoint_id).checkpoint_id
            if number >= self._transcript.next_checkpoint:
                # Another process may have set it.
                await self._followed.take_in()
            if not 0 <= number < self._transcript.next_checkpoint:
                raise _no_checkpoint(number, self._path)
            try:
                await self._followed.revert_to(checkpoint_id)
            except NotFound as error:
                raise _no_checkpoint(number, self._path) from error

    async def clear(self) -> None:
        """Drop everything, the system prompt too; the rotated file keeps the dropped lines.

        Raises:
            RuntimeError: the folder of the file is missing.
            FileNotFoundError: there is no file.
        """
        async with self._followed.lock:
            await self._followed.clear()

    async def append_message(self, message: Appended | Sequence[Appended]) -> None:
        """Append one message, or a sequence of them as one atomic batch.

        Args:
            message: objects of the message type, or plain dicts, which it has to accept. A dict is
                stored as it is, except that the role `developer` becomes `system` if the message
                type knows only that one.

        Raises:
            BadRequest: a message has another form, or the message type refuses a dict; the error
                names the message, and nothing was stored.
        """
        messages = list(message) if isinstance(message, Sequence) else [message]
        async with self._followed.lock:
            if messages:
                await self._followed.append(messages)
            else:
                await in_thread(self._followed.file.make)

    async def update_token_count(self, token_count: int) -> None:
        """Append the token count of the context, as a model reported it."""
        async with self._followed.lock:
            await self._followed.update_token_count(token_count)


def _no_checkpoint(checkpoint_id: int, path: Path) -> ValueError:
    return ValueError(f"checkpoint {checkpoint_id} does not exist in {path}")
