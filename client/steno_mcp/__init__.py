"""`steno mcp`: sessions for any client of the Model Context Protocol.

The server is a client of the daemon like any other: it maps resources and tools to the client's
methods, and holds no sessions of its own.
"""
