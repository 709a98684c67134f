"""Memories as text for people and agents."""

from collections.abc import Iterable


def as_lines(memories: Iterable[str]) -> str:
    """One `- ` line for each memory (the plugin's form); line breaks inside a memory become blanks."""
    collapsed = (" ".join(line.strip() for line in memory.splitlines() if line.strip()) for memory in memories)
    return "\n".join(f"- {memory}" for memory in collapsed if memory)
