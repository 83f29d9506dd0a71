"""Liveness, health and version, for load balancers, orchestrators and people (wire contract: fhevm_http 15)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Lock, Thread
from time import monotonic
from typing import Final

from django.db import connections
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from relayer_site.version import VERSION, application_name, build
from requests_app.config import config
from requests_app.errors import RelayerError
from requests_app.overview import Cached
from requests_app.store import overview as store
from requests_app.store.session import web_connection

FRESH_SECONDS: Final = 1.0
CHECK_SECONDS: Final = 5.0
LISTENER_SILENCE_SECONDS: Final = 15.0
"""A listener turns every few hundred milliseconds and a frozen one is replaced after 10 s; beyond this nobody listens."""

_log = logging.getLogger("relayer.health")


class Probe:
    """A check that runs aside with a deadline, so that a hanging dependency cannot hang the answer.

    While an earlier run of the same check still hangs, the check fails at once: hung threads do not pile up.
    """

    def __init__(self, name: str, check: Callable[[], Mapping[str, bool]], seconds: float = CHECK_SECONDS) -> None:
        self.name = name
        self._check = check
        self._seconds = seconds
        self._running: Future[Mapping[str, bool]] | None = None
        self._lock = Lock()

    def start(self) -> Future[Mapping[str, bool]] | None:
        """Begin the check; None when the previous one has not come back."""
        with self._lock:
            if self._running is not None and not self._running.done():
                return None
            future: Future[Mapping[str, bool]] = Future()
            self._running = future
        # A daemon thread: a check that hangs must not hold up the end of the process either.
        Thread(target=self._run, args=(future,), name=f"health-{self.name}", daemon=True).start()
        return future

    def _run(self, future: Future[Mapping[str, bool]]) -> None:
        try:
            future.set_result(self._check())
        except Exception as error:
            future.set_exception(error)
        finally:
            connections.close_all()  # Django's connections belong to the thread, and this one ends here

    def finish(self, future: Future[Mapping[str, bool]] | None, deadline: float) -> Mapping[str, bool]:
        """The verdicts by dependency, waiting at most until `deadline` (monotonic); any error is a failed check."""
        if future is None:
            return {self.name: False}
        try:
            return future.result(timeout=max(0.0, deadline - monotonic()))
        except FutureTimeout:
            _log.warning("health check timed out", extra={"action": "health_check_failed", "dependency": self.name})
        except Exception as error:
            # Whatever a dependency throws means that it is not usable; the reason is for the log, not for the caller.
            _log.warning(
                "health check failed",
                extra={"action": "health_check_failed", "dependency": self.name, "error": type(error).__name__},
                exc_info=error,
            )
        return {self.name: False}


def check_database() -> Mapping[str, bool]:
    """Ask the database, and read from it whether each chain source has a live listener."""
    conn = web_connection()
    verdicts = {"database": store.database_answers(conn)}
    rows = store.listeners(conn)
    for index, row in enumerate(rows):
        verdicts[f"gateway_listener_{index}"] = listens(row)
    if not rows:
        verdicts["gateway_listener_0"] = False
    return verdicts


def listens(row: store.Listener) -> bool:
    """Whether a source is being read: not halted, lease alive, and its loop turned lately."""
    if row.halted is not None or (row.lease_seconds_left or 0.0) <= 0.0:
        return False
    signs = [age for age in (row.turn_age_seconds, row.cursor_age_seconds) if age is not None]
    return bool(signs) and min(signs) < LISTENER_SILENCE_SECONDS


def check_gateway() -> Mapping[str, bool]:
    """Whether at least one gateway endpoint answers, and as the chain that is configured; of those that do, whether one says what is final."""
    from workers.chain.rpc import FINALIZED, RpcEndpoint  # only this check needs the chain layer

    gateway, answers = config().gateway, False
    for url in gateway.rpc_urls:
        endpoint = RpcEndpoint(url, timeout=(1, 2), chain_id=gateway.chain_id, finality_depth=gateway.finality_depth)
        try:
            endpoint.call("eth_blockNumber")
            answers = True
            if endpoint.call("eth_getBlockByNumber", [FINALIZED, False]) is not None:
                return {"gateway_http": True, "gateway_finality": True}
        except RelayerError:  # unreachable, another chain, or an error object: the next endpoint may do
            continue
        finally:
            endpoint.close()
    return {"gateway_http": True, "gateway_finality": False} if answers else {"gateway_http": False}


PROBES: Final = (Probe("database", check_database), Probe("gateway_http", check_gateway))


def probe_all() -> dict[str, bool]:
    """Run every check side by side; all have the same deadline."""
    deadline = monotonic() + CHECK_SECONDS
    started = [(probe, probe.start()) for probe in PROBES]
    verdicts: dict[str, bool] = {}
    for probe, future in started:
        verdicts.update(probe.finish(future, deadline))
    return verdicts


current = Cached(probe_all, FRESH_SECONDS)


@require_safe
def liveness(request: HttpRequest) -> JsonResponse:
    """The process answers. Looks at nothing else: a restart would not mend a dependency."""
    return JsonResponse({"status": "alive"})


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 when every dependency is usable, else 503; both name each dependency's verdict."""
    verdicts = current.get()
    healthy = all(verdicts.values())
    body = {
        "status": "healthy" if healthy else "unhealthy",
        "dependencies": {name: "ok" if good else "fail" for name, good in verdicts.items()},
    }
    return JsonResponse(body, status=200 if healthy else 503)


@require_safe
def version(request: HttpRequest) -> JsonResponse:
    """Name, version and commit of this program."""
    return JsonResponse({"name": application_name(), "version": VERSION, "build": build()})
