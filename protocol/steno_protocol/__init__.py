"""The contract between client and daemon: messages and file formats.

Messages   commands, replies, events    the contents of a request, its reply and an event
           messages                     messages as frames
           errors, limits               the tree of errors, every bound
           rights, credentials          the rights of clients of other machines, and their keys
           positions                    `generation:line`
Files      records, wire                the checks of appended records; the lines of both files
           timeline_entries             the lines of the timeline
           journal_entries              the changes of a session's files, in a cluster's journal
           context, checkpoint_ids      the meaning of a context's lines; the next checkpoint id
           blocks                       bytes as lines, and lines by their numbers
           paths                        names of files, and rules of ids
           private_files                whose files, folders and sockets are trusted; types of files
           compression                  compressed past generations
           work_dirs                    the work directories in kimi-cli's file
Checks     checks, line_schemas         a check of a session's files; what their lines hold
           checksums                    the checksums of a file's blocks
           damage, record_salvage       damaged lines, and the whole records inside them
Settings   settings, metrics            the options of `config.toml`, and the numbers of `stats`
           installation                 the supported system, and the command that adds an extra
Helpers    _json, spelling
"""

from typing import Final

__all__ = ["PROTOCOL_MAGIC", "PROTOCOL_VERSION", "__version__"]

__version__: Final = "0.1.0"
"""The version of the client, of the daemon and of the command."""

PROTOCOL_MAGIC: Final = b"STENO/2"
"""The first line of every message; its number changes only with the message format."""

PROTOCOL_VERSION: Final = 2
"""Version of the protocol in `hello`, raised when old clients could misread a new daemon."""
