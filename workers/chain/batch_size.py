"""How many calls go into one HTTP request: as many as a node has shown that it takes."""

from __future__ import annotations

from typing import Final

LARGEST: Final = 1000
MOST_PROOFS: Final = 512  # full requests that a smaller size has to pass before twice as many calls are tried again


class BatchSize:
    """Halved after a request that was too much for the node, doubled again after some that were not: ever more of them.

    A node that only stumbled is asked by large requests again at once; one that does take no more costs fewer and fewer tries.
    """

    def __init__(self) -> None:
        self._size = LARGEST
        self._proofs, self._wanted, self._grown = 0, 1, False

    def of(self, limit: int) -> int:
        """Calls of the next request: `limit`, or less."""
        return min(limit, self._size)

    def refused(self, size: int) -> None:
        """A request of `size` calls was too much."""
        if size > 1:
            self._size, self._proofs, self._grown = size // 2, 0, False
            self._wanted = min(MOST_PROOFS, 2 * self._wanted)

    def answered(self, calls: int) -> None:
        """A request of so many calls was answered; it says something when it was a full one."""
        if self._size >= LARGEST or calls < self._size:
            return
        self._proofs += 1
        if self._grown:
            self._wanted, self._grown = 1, False
        if self._proofs >= self._wanted:
            self._size = min(LARGEST, 2 * self._size)
            self._proofs, self._grown = 0, True
