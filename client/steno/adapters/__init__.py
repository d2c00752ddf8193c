"""Session classes of other programs, backed by steno.

kimi      for kimi-cli: `Context(file_backend=path)`, its conversation; `WireFile(path)`, its
          events; `DenwaRenji(path)`, its D-Mail; `SimpleCompaction()`, a compaction as one rewrite
kosong    `StenoLinearStorage(path)`, a storage for kosong's LinearContext

claude_agent_sdk, openai_agents, langgraph, pydantic_ai, google_adk, strands, llama_index and
agent_framework: the store that each of these frameworks asks for, on a client of steno

An adapter can be imported without its program, which only its objects need.
"""
