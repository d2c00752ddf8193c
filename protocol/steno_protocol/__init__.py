"""The contract between client and daemon: messages and file formats.

Messages   commands, replies, events    the contents of a request, its reply and an event
           messages                     messages as frames
           errors, limits, hello        the tree of errors, every bound, the bounds in the hello
           rights, credentials          the rights of clients of other machines, and their keys
           positions, version           `generation:line`; the versions of protocol and program
Files      records, wire                the checks of appended records; the lines of both files
           timeline_entries             the lines of the timeline
           journal_entries              the changes of a session's files, in a cluster's journal
           context, checkpoint_ids      the meaning of a context's lines; the next checkpoint id
           lines, blocks                bytes as lines, and lines by their numbers
           paths, file_types            names of files, rules of ids, and other files found there
           private_files                whose files, folders and sockets are trusted
           work_dirs                    the work directories in kimi-cli's file
Checks     checks, line_schemas         a check of a session's files; what their lines hold
           checksums                    the checksums of a file's blocks
           damage, record_salvage       damaged lines, and the whole records inside them
Settings   settings, metrics            the options of `config.toml`, and the numbers of `stats`
           installation                 the supported system, and the command that adds an extra
Helpers    _json, surrogates, spelling
"""

from steno_protocol.version import PROTOCOL_MAGIC, PROTOCOL_VERSION, __version__

__all__ = ["PROTOCOL_MAGIC", "PROTOCOL_VERSION", "__version__"]
