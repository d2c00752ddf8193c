"""What is said between steno's client and daemon, and what is written to disk: pure.

frames      messages as ZeroMQ frames        commands, replies, events   what they say
records     the append gate                  context                     what the lines mean
positions   generation:line                  places                      names and ids
errors      the one tree of errors           limits                      every bound
"""

from steno_protocol.version import PROTOCOL_MAGIC, PROTOCOL_VERSION, __version__

__all__ = ["PROTOCOL_MAGIC", "PROTOCOL_VERSION", "__version__"]
