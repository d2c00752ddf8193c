"""The async client: asyncio and trio."""
