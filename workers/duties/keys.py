"""Keeps what /v2/keyurl answers current: the active FHE key and CRS, read from the host chain."""

from __future__ import annotations

import logging
from typing import Final

from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.store.sweep import publish_key
from workers.leases import HeldLease
from workers.shift import ShiftContext

log = logging.getLogger("relayer.sweep")

INTERVAL: Final = 12.0


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Publish a changed key; 1 when it changed. A failed poll keeps the former one."""
    host = config().protocol_host
    if context.clients.protocol is None or host is None or host.kms_generation is None:
        return 0
    crash_point("before_key_duty_rpc")
    try:
        material = context.clients.protocol.key_material()
    except RelayerError as error:  # KeyMaterialUnavailable, WrongChain; named so, web3 is not imported at every start
        log.warning("key material not read: %s", error, extra={"action": "keys_unavailable"})
        return 0
    crash_point("after_key_duty_rpc")
    crash_point("before_publish_key_commit")
    news = publish_key(context.conn, material.key_id, material.crs_id, material.context_id, material.body())
    crash_point("after_publish_key_commit")
    if news:
        log.info("key published", extra={"action": "key_published", "key_id": material.key_id.hex()})
    return int(news)
