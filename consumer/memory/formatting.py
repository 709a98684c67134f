"""Formats memories as text for people and agents."""

from collections.abc import Iterable


def format_memories(memories: Iterable[str]) -> str:
    """Return one `- ` line per memory, as the plugin does; line breaks inside a memory become blanks."""
    collapsed = (" ".join(line.strip() for line in memory.splitlines() if line.strip()) for memory in memories)
    return "\n".join(f"- {memory}" for memory in collapsed if memory)
