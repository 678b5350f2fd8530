"""The descriptors of one guest: numbers from 1000 up that are never used twice, and what they stand for."""

from typing import Protocol


class Entry(Protocol):
    """What a descriptor stands for."""

    @property
    def kind(self) -> str:
        """As `spear_fd_ctl` names it: `ChatSession`, `ChatResponse`, `McpSession`, `Epoll`."""


class FdTable:
    """All that are open; not more than `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
