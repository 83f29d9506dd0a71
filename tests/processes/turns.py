"""Turns for the process tests: real jobs of the real queue, with no work behind them."""

from __future__ import annotations

from requests_app.store import queue
from workers.shift import ShiftContext


class AckTurn:
    """Leases jobs of the send queue and acknowledges them."""

    name = "acknowledge"

    def run(self, context: ShiftContext) -> int:
        """How many jobs were taken off the queue."""
        deliveries = queue.lease_jobs(context.conn, queue.SEND, 10, context.instance, 5.0)
        if deliveries:
            queue.ack_jobs(context.conn, [delivery.receipt for delivery in deliveries])
        return len(deliveries)

    def close(self) -> None:
        """Nothing is kept."""
