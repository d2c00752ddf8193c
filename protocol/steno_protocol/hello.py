"""The limits in the reply to `hello`."""

from steno_protocol import limits


def limits_in_hello() -> dict[str, int]:
    """Return the `limits` of the reply to `hello`: every limit of a client's requests by name."""
    return {
        "record_bytes_max": limits.RECORD_BYTES_MAX,
        "record_depth_max": limits.RECORD_DEPTH_MAX,
        "role_bytes_max": limits.ROLE_BYTES_MAX,
        "batch_records_max": limits.BATCH_RECORDS_MAX,
        "batch_bytes_max": limits.BATCH_BYTES_MAX,
        "header_bytes_max": limits.HEADER_BYTES_MAX,
        "message_requests_max": limits.MESSAGE_REQUESTS_MAX,
        "frame_bytes_max": limits.FRAME_BYTES_MAX,
        "part_bytes": limits.PART_BYTES,
        "receive_queue_messages": limits.RECEIVE_QUEUE_MESSAGES,
        "request_id_bytes_max": limits.REQUEST_ID_BYTES_MAX,
        "key_chars_max": limits.KEY_CHARS_MAX,
        "name_chars_max": limits.NAME_CHARS_MAX,
        "session_id_chars_max": limits.SESSION_ID_CHARS_MAX,
        "session_segment_chars_max": limits.SESSION_SEGMENT_CHARS_MAX,
        "count_max": limits.COUNT_MAX,
        "subscriptions_per_peer_max": limits.SUBSCRIPTIONS_PER_PEER_MAX,
        "subscription_window_bytes": limits.SUBSCRIPTION_WINDOW_BYTES,
        "subscription_window_bytes_max": limits.SUBSCRIPTION_WINDOW_BYTES_MAX,
        "subscription_pace_ms_max": limits.SUBSCRIPTION_PACE_MS_MAX,
        "event_cost_bytes": limits.EVENT_COST_BYTES,
        "block_bytes": limits.BLOCK_BYTES,
        "list_sessions_max": limits.LIST_SESSIONS_MAX,
        "mailbox_commands_max": limits.MAILBOX_COMMANDS_MAX,
        "mailbox_bytes_max": limits.MAILBOX_BYTES_MAX,
        "send_queue_messages": limits.SEND_QUEUE_MESSAGES,
        "peer_loans_bytes_max": limits.PEER_LOANS_BYTES_MAX,
        "peer_events_bytes_max": limits.PEER_EVENTS_BYTES_MAX,
    }
