"""What is said between steno's client and daemon, and what is written to disk: pure.

Said       commands, replies, events    what a request, its answer and a push hold
           frames, bundles              how a message is built of them, and taken apart
           zmtp, socket_limits          how messages travel on a local socket, and its bounds
           errors, limits, greeting     the one tree of errors, every bound, and those that are told
           sync_limits                  the bounds of commits on their way to the disk
           rights, credentials          who may ask from another machine, and the keys
           positions, version           `generation:line`; the versions of protocol and program
Written    records, wire                the gates, and what a line of either file may be
           happenings                   what happened to a session: the lines of its timeline
           context, floors              what the lines of a context mean, and the id after a cut
           lines, blocks                bytes as lines, and lines by their numbers
           places, kinds                names of files, rules of ids, and what else may lie there
           work_dirs                    the work directories that kimi-cli's file names
Checked    checks, dialects             a session's files, and what each of them holds
           checksums                    the checksums of a file's blocks
           damage, welded               damaged lines, and the records that are whole in them
Set        settings, metrics            the options of `config.toml`, and the numbers of `stats`
Inside     _json, _settings_values, _toml_lines
"""

from steno_protocol.version import PROTOCOL_MAGIC, PROTOCOL_VERSION, __version__

__all__ = ["PROTOCOL_MAGIC", "PROTOCOL_VERSION", "__version__"]
