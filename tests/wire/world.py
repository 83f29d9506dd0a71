"""The running relayer behind fault proxies, with two host chains and short deadlines, and everything a scenario does to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from requests_app import depths
from requests_app.sockets import free_port
from tests.faults.rules import Fault, Rule
from tests.stack.harness import ROOT, Stack
from tests.waiting import wait_until
from tests.wire.aimed import Aim, AimedProxy
from tests.wire.bodies import grants, mark, with_handles
from tests.wire.client import Client, Response
from tests.wire.setting_up import Countdown, Setup
from workers.devnet import control, eip712
from workers.devnet.accounts import derive
from workers.devnet.contracts import contract
from workers.devnet.handles import EUINT32, fresh
from workers.devnet.layout import HOST_CHAIN_ID
from workers.devnet.plan import gateway_plan, host_plan
from workers.devnet.rpc import Rpc
from workers.devnet.sending import Call, Sender
from workers.devnet.traffic import Form, Submission, Traffic

SECOND_HOST_CHAIN = 9001
UNKNOWN_CHAIN = 99999
DEADLINE_SECONDS = 12
SOFT_LIMIT = 1_500
ALLOWANCE_SLOT = 2  # place of `allowance` in ZamaToken's storage
SETTINGS = {
    "QUEUED_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
    "PROCESSING_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
    "IN_FLIGHT_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
    "RESPONSE_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
    "READINESS_INTERVAL_SECONDS": "0.5",
    "QUEUE_CAPACITY": str(SOFT_LIMIT + 100),
    "QUEUE_SAFETY_MARGIN": "100",
    "ADMIN_CONFIG": "1",
    "WEBHOOK_ALLOWED_HOSTS": "127.0.0.1",
}


class World:
    """One stack for all scenarios. Safe to use from many threads."""

    def __init__(self, var: Path) -> None:
        # How requests ended, one example each: (status, label, or "rejected") -> (path, job id).
        self.ended: dict[tuple[int, str], tuple[str, str]] = {}
        self.ended_jobs: list[tuple[str, str]] = []
        gateway_port, host_port = free_port(), free_port()
        self.gateway_proxy = AimedProxy(f"http://127.0.0.1:{gateway_port}")
        self.host_proxy = AimedProxy(f"http://127.0.0.1:{host_port}")
        self.second_proxy = AimedProxy(f"http://127.0.0.1:{host_port}")
        self.second_proxy.add(Rule(Fault.WRONG_CHAIN, options={"chain_id": SECOND_HOST_CHAIN}))
        urls = var.with_name(var.name + "-gateway-urls")
        urls.write_text(self.gateway_proxy.url)
        environment = {
            **SETTINGS,
            "DEVNET_GATEWAY_PORT": str(gateway_port),
            "DEVNET_HOST_PORT": str(host_port),
            # The variable itself would mean "no devnet"; its _FILE form only changes where the relayer asks.
            "GATEWAY_RPC_URLS_FILE": str(urls),
            "HOST_CHAINS": json.dumps(host_chains(self.host_proxy.url, self.second_proxy.url)),
        }
        self.environment = environment
        self.stack = Stack(var, environment=environment)
        deployment = self.stack.deployment
        self.client = Client(self.stack.url, self.stack.api_key)
        self.host_rpc: Rpc = deployment.host_rpc()
        self.domain = eip712.domain("Decryption", HOST_CHAIN_ID, deployment.gateway["decryption"])
        self._traffic = Traffic(deployment, operator=2)
        self._drafting = threading.Lock()
        self._owner = Sender(self.stack.rpc, deployment.deployer, deployment.gateway["chain_id"])
        self._setup = Setup(self._traffic)
        # How many scenarios of the silent phase have what they wait for on the chain.
        self.sent, self.stuck = Countdown(), Countdown()
        self.as_owner("GatewayConfig", "gateway_config", "setHostChain", SECOND_HOST_CHAIN, True, False)
        wait_until(lambda: self.client.get("/v2/keyurl").status == 200, 60, "the first poll publishes the key")

    def close(self) -> None:
        self.stack.stop()
        self._setup.close()
        self._traffic.close()
        self.host_rpc.close()
        for proxy in (self.gateway_proxy, self.host_proxy, self.second_proxy):
            proxy.close()

    # --- requests ---------------------------------------------------------------------------------------------------------------------

    def draft(self, form: Form, chains: Sequence[int] | None = None, extra_data: str = "0x00") -> Submission:
        """A new body; with `chains` one handle on each. No chain knows it yet."""
        with self._drafting:
            (made,) = self._traffic.build([form], extra_data, set_up=False)
        return made if chains is None else with_handles(made, [fresh(chain, EUINT32) for chain in chains])

    def allow(self, submission: Submission, handles: Sequence[bytes] | None = None, commit: bool = True) -> Submission:
        """Grant the handles (all by default) on the host ACL, and commit every ciphertext on the gateway."""
        wanted = submission.handles if handles is None else handles
        calls = grants(submission, wanted) if wanted else []
        self._setup.run(calls, submission.handles if commit else ())
        return submission

    def submission(self, form: Form, extra_data: str = "0x00") -> Submission:
        """A new body that everybody accepts."""
        return self.allow(self.draft(form, extra_data=extra_data))

    def post(self, submission: Submission) -> str:
        """POST; the job id."""
        return self.client.post(submission.path, submission.body).job_id

    def result_of(self, submission: Submission, job_id: str | None = None, timeout: float = 120.0) -> Response:
        """The final answer of a submission, posted here unless it has a job."""
        job = job_id or self.post(submission)
        response = self.client.follow(submission.path, job, timeout)
        rejected = response.status == 200 and response.body["result"].get("accepted") is False
        if rejected or response.status != 200:
            self.ended[response.status, "rejected" if rejected else response.error["label"]] = (
                submission.path,
                job,
            )
            self.ended_jobs.append((submission.path, job))
        return response

    # --- faults -----------------------------------------------------------------------------------------------------------------------

    def gateway_error(
        self, method: str, submission: Submission, error: dict[str, Any], times: int | None = None, selector: str = ""
    ) -> Any:
        """The gateway's node fails calls of `method` that carry the submission, for one block."""
        marks = (selector, mark(submission)) if selector else (mark(submission),)
        return self.gateway_proxy.aimed(Aim(method, marks, error, times))

    def host_error(self, submission: Submission, error: dict[str, Any], times: int | None = None) -> Any:
        """The host chain's node fails the ACL calls of the submission, for one block."""
        return self.host_proxy.aimed(Aim("eth_call", (mark(submission),), error, times))

    def as_owner(self, name: str, key: str, function: str, *values: Any) -> None:
        """A call by the owner of the gateway contracts, mined."""
        self._owner.run([Call(self.stack.deployment.gateway[key], contract(name).call(function, *values))])

    def allowance_slots(self) -> list[str]:
        """Storage slots (0x text) of the fee token's allowances of the relayer's signers for the payment contract."""
        payment = bytes.fromhex(self.stack.deployment.gateway["payment"][2:])
        holders = [
            bytes.fromhex(eip712.address_of(bytes.fromhex(key[2:]))[2:])
            for key in self.stack.deployment.raw["relayer_signer_keys"]
        ]
        inner = [eip712.keccak256(holder.rjust(32, b"\0") + ALLOWANCE_SLOT.to_bytes(32, "big")) for holder in holders]
        return ["0x" + eip712.keccak256(payment.rjust(32, b"\0") + slot).hex() for slot in inner]

    def set_token_storage(self, slot: str, value: int) -> None:
        """Overwrite one word of the fee token's storage in the node."""
        token = self.stack.deployment.gateway["fee_token"]
        self.stack.rpc.call("anvil_setStorageAt", token, slot, f"0x{value:064x}")

    def behave(self, **behaviours: control.Behaviour) -> None:
        """How the KMS nodes and coprocessors act from now on."""
        control.write(self.stack.var / "devnet" / "bots-control.json", **behaviours)

    def environment_with(self, **changes: str) -> dict[str, str]:
        """The environment of one more process of the stack."""
        environment = {**os.environ, **self.environment, "RELAYER_VAR": str(self.stack.var), **changes}
        environment.pop("DJANGO_SETTINGS_MODULE", None)
        return environment

    @contextmanager
    def another_web(self, **changes: str) -> Iterator[Client]:
        """A client of one more web server over the same database, with other settings, for one block."""
        with self.starting_web(**changes) as client:
            client.wait_alive()
            yield client

    @contextmanager
    def starting_web(self, **changes: str) -> Iterator[Client]:
        """The same, before it answers."""
        port = free_port()
        environment = self.environment_with(API_PORT=str(port), WEB_WORKERS="1", RELAYER_ROLE="web", **changes)
        line = [sys.executable, "-m", "relayer_site.web"]
        client = Client(f"http://127.0.0.1:{port}", self.stack.api_key)
        with subprocess.Popen(
            line, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            try:
                yield client
            finally:
                server.terminate()

    # --- the database, as an observer ---------------------------------------------------------------------------------------------------

    def row(self, job_id: str) -> Any:
        with self.stack.database() as conn:
            (found,) = self.stack.rows(conn, [job_id])
        return found

    def wait_status(self, job_id: str, *statuses: str, timeout: float = 120.0) -> str:
        """The status once it is one of these."""

        def reached() -> str | None:
            status = str(self.row(job_id).status)
            return status if status in statuses else None

        return str(wait_until(reached, timeout, f"{job_id} {statuses}"))

    def give_time(self, *job_ids: str) -> None:
        """The state in which these are now may last for ten minutes more, for a test that stops whoever works on them."""
        with self.stack.database() as conn:
            for table in ("user_decrypt_req", "public_decrypt_req", "input_proof_req"):
                conn.execute(
                    f"UPDATE {table} SET deadline_at = clock_timestamp() + interval '10 minutes'"
                    " WHERE ext_job_id = ANY(%s::uuid[]) AND deadline_at IS NOT NULL",
                    (list(job_ids),),
                )

    @contextmanager
    def filled(self, queue_name: str, kind: int, count: int) -> Iterator[None]:
        """`count` more jobs in a queue, of nobody and not due, for one block."""
        with self.stack.database() as conn:
            conn.execute(
                "INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, visible_at)"
                " SELECT %(queue)s, 'filler/' || %(queue)s || '/' || %(kind)s || '/' || g, %(kind)s, 1000000000 + g, 1,"
                " clock_timestamp() + interval '1 hour' FROM generate_series(1, %(count)s) g",
                {"queue": queue_name, "kind": kind, "count": count},
            )
            try:
                yield
            finally:
                conn.execute("DELETE FROM queue_job WHERE job_key LIKE %s", (f"filler/{queue_name}/%",))
                if count >= depths.FEW:
                    time.sleep(depths.FRESH_SECONDS)  # then no web process remembers it


def host_chains(first_url: str, second_url: str) -> list[dict[str, Any]]:
    """The setting: the devnet's host chain, and the same node again under another chain id.

    The contracts' addresses are those of the deployment plan, which are known before anything runs.
    """
    wallets = derive()
    addresses = host_plan(wallets, gateway_plan(wallets), "").addresses
    first = {
        "chain_id": HOST_CHAIN_ID,
        "url": first_url,
        "acl_address": addresses["ACL"],
        "protocol_config_address": addresses["ProtocolConfig"],
        "kms_generation_address": addresses["KMSGeneration"],
    }
    return [first, {"chain_id": SECOND_HOST_CHAIN, "url": second_url, "acl_address": addresses["ACL"]}]


def var_directory() -> Path:
    """Where the stack of this module keeps everything."""
    return Path(os.environ.get("RELAYER_WIRE_VAR", ROOT / "var" / "wire"))
