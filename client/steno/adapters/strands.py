"""The session repository of Strands Agents (1.x), backed by steno.

    with steno.connect_sync() as client:
        repository = StenoSessionRepository(client)
        manager = RepositorySessionManager("talk", session_repository=repository)
        Agent(session_manager=manager)("Hello")

A session of Strands is a session of steno, `strands/<session>`, with record lists:

    session             the session alone
    agents              the agents, by their ids
    messages-<digest>   the messages of an agent, by their ids
    multi-agents        the states of swarms and graphs, by their ids
"""

from typing import TYPE_CHECKING, Any, Final

import steno
from steno.adapters._either_client import without_waiting as now
from steno.adapters._lists import RecordLists
from steno.adapters._names import digest_of, segment_or_digest
from steno.adapters._optional import base_class, framework

_SESSION: Final = "session"
_AGENTS: Final = "agents"
_MULTI_AGENTS: Final = "multi-agents"

Session = Any
Agent = Any
Message = Any

if TYPE_CHECKING:

    class _SessionRepository:
        """The interface, for programs that are checked without Strands."""

else:
    _SessionRepository = base_class("strands.session.session_repository", "SessionRepository")


class StenoSessionRepository(_SessionRepository):
    """A `SessionRepository` whose messages are on the disk when `create_message` returns.

    The manager of Strands numbers the messages itself. If two processes give one number to two
    messages, the second one gets `SessionException`, and nothing is lost: a new manager reads the
    session again. A message or an agent that is updated has the last contents.

    Args:
        client: an open blocking client; its owner closes it after the last use.
        prefix: the first segment of the ids of the sessions.

    Raises:
        ModuleNotFoundError: Strands is not installed; the message names the extra.
    """

    def __init__(self, client: steno.BlockingClient, prefix: str = "strands") -> None:
        self._types = framework("strands.types.session", "strands-agents")
        self._error = framework("strands.types.exceptions", "strands-agents").SessionException
        self._client = client
        self._prefix = prefix

    def create_session(self, session: Session, **_: Any) -> Session:
        """Create a session; if there is one, it is a SessionException."""
        lists, record = self._lists(session.session_id), session.to_dict()
        try:
            now(lists.change(_SESSION, lambda items: items.append(record, expect="0:0")))
        except steno.Conflict as error:
            raise self._error(f"Session {session.session_id} already exists") from error
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Return a session; None if there is none."""
        found = now(self._lists(session_id).read(_SESSION, 1))
        return self._types.Session.from_dict(found.items[0]) if found and found.items else None

    def create_agent(self, session_id: str, session_agent: Agent, **_: Any) -> None:
        """Store an agent; it replaces one with the same id."""
        self._put(session_id, _AGENTS, session_agent.agent_id, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> Agent | None:
        """Return an agent; None if there is none."""
        found = self._get(session_id, _AGENTS, agent_id)
        return None if found is None else self._types.SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: Agent, **_: Any) -> None:
        """Replace an agent but for its time of creation; without one a SessionException."""
        agent_id = session_agent.agent_id
        before = self._get(session_id, _AGENTS, agent_id)
        if before is None:
            raise self._error(f"Agent {agent_id} in session {session_id} does not exist")
        session_agent.created_at = before["created_at"]
        self._put(session_id, _AGENTS, agent_id, session_agent.to_dict())

    def create_message(
        self, session_id: str, agent_id: str, session_message: Message, **_: Any
    ) -> None:
        """Store a message; again the same one changes nothing.

        Raises:
            SessionException: there is another message with the id.
        """
        name, number = _messages(agent_id), _number(session_message.message_id)
        try:
            self._put(session_id, name, number, session_message.to_dict(), digest_of(name, number))
        except steno.Conflict as error:
            raise self._error(
                f"Message {number} of {agent_id} in session {session_id} exists already, from"
                " another process: read the session again with a new session manager"
            ) from error

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **_: Any
    ) -> Message | None:
        """Return a message; None if there is none."""
        found = self._get(session_id, _messages(agent_id), _number(message_id))
        return None if found is None else self._types.SessionMessage.from_dict(found)

    def update_message(
        self, session_id: str, agent_id: str, session_message: Message, **_: Any
    ) -> None:
        """Replace a message but for its time of creation; without one a SessionException."""
        name, number = _messages(agent_id), _number(session_message.message_id)
        before = self._get(session_id, name, number)
        if before is None:
            raise self._error(f"Message {number} does not exist")
        session_message.created_at = before["created_at"]
        self._put(session_id, name, number, session_message.to_dict())

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> list[Message]:
        """Return the messages of an agent by their ids; without an agent a SessionException."""
        found = now(self._lists(session_id).read(_messages(agent_id)))
        items = found.items if found else []
        if not items and self.read_agent(session_id, agent_id) is None:
            raise self._error(f"Agent {agent_id} in session {session_id} does not exist")
        items = sorted(items, key=lambda each: each["message_id"])
        wanted = items[offset:] if limit is None else items[offset : offset + limit]
        return [self._types.SessionMessage.from_dict(each) for each in wanted]

    def create_multi_agent(self, session_id: str, multi_agent: Any, **_: Any) -> None:
        """Store the state of a swarm or graph."""
        self._put(session_id, _MULTI_AGENTS, multi_agent.id, multi_agent.serialize_state())

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **_: Any
    ) -> dict[str, Any] | None:
        """Return the state of a swarm or graph; None if there is none."""
        return self._get(session_id, _MULTI_AGENTS, multi_agent_id)

    def update_multi_agent(self, session_id: str, multi_agent: Any, **_: Any) -> None:
        """Replace the state of a swarm or graph; without one a SessionException."""
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            raise self._error(
                f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            )
        self.create_multi_agent(session_id, multi_agent)

    def _put(
        self, session_id: str, name: str, item: str, record: dict[str, Any], key: str | None = None
    ) -> None:
        now(self._lists(session_id).change(name, lambda items: items.put(item, record, key=key)))

    def _get(self, session_id: str, name: str, item: str) -> dict[str, Any] | None:
        return now(self._lists(session_id).get(name, item))

    def _lists(self, session_id: str) -> RecordLists:
        return RecordLists(self._client, f"{self._prefix}/{segment_or_digest(session_id)}")


def _messages(agent_id: str) -> str:
    return f"messages-{digest_of(agent_id)}"


def _number(message_id: Any) -> str:
    if not isinstance(message_id, int):
        raise ValueError(f"message_id=<{message_id}> | message id must be an integer")
    return str(message_id)
