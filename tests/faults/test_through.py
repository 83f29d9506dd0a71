"""The whole stack behind the fault proxy: the relayer's calls go through it, the bots' do not, and faults do not stop requests."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.rules import Fault, Rule
from tests.stack.harness import ROOT, ChainProxies, Stack
from workers.devnet.traffic import FORMS, Traffic
from workers.management.commands.relayer_up import wants_devnet

VAR = Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack")).with_name("proxied-stack")


def test_the_devnet_runs_when_asked_for_or_when_nothing_else_is_there() -> None:
    assert wants_devnet({})
    assert not wants_devnet({"GATEWAY_RPC_URLS": "http://gateway"})
    assert wants_devnet({"GATEWAY_RPC_URLS": "http://gateway", "DEVNET": "1"})
    assert not wants_devnet({"DEVNET": "0"})


@pytest.mark.stack
@pytest.mark.full
@pytest.mark.timeout(240)
def test_every_form_completes_when_each_first_send_loses_its_answer() -> None:
    proxies = ChainProxies.make(seed=5)
    stack = Stack(VAR, through=proxies)
    try:
        proxies.gateway.add(Rule(Fault.DROP_ANSWER, "eth_sendRawTransaction", times=3))
        with closing(Traffic(stack.deployment, operator=1)) as traffic:
            job_ids = stack.post_all(traffic.build(list(FORMS)))
        rows = stack.wait_final(job_ids, 90)
        assert {row.status for row in rows} == {"completed"}
        seen = proxies.gateway.script
        assert seen.injected["drop_answer"] >= 1
        assert seen.seen["eth_getLogs"] > 0
        assert proxies.host.script.seen["eth_call"] > 0
        assert len(stack.request_events()) == len(FORMS)
    finally:
        stack.stop()
        proxies.close()
