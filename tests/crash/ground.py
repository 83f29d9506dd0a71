"""Where scenes are played: the devnet behind nodes that can be told to misbehave, an empty database, one account, one signer."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connections
from django.test import Client

from requests_app.api.auth import forget_keys
from requests_app.config import config
from requests_app.runtime import forget as forget_settings
from requests_app.states import Kind
from tests.api.conftest import issue_key
from tests.core.rows import insert_account
from tests.crash.scene import FORMS, REQUESTS, Scene
from tests.devnet.conftest import Devnet
from tests.devnet.forks import take_back
from tests.faults.proxy import FaultProxy
from workers.chain.keccak import keccak
from workers.chain.signer import LocalSigner
from workers.devnet.contracts import contract
from workers.devnet.traffic import Form, Submission, Traffic
from workers.devnet.verify import RESPONSE_EVENTS

KEY = "crash-key"
SHARE_EVENT = contract("Decryption").event("UserDecryptionResponse")
BLOCK_SECONDS = 0.06
HELD_SECONDS = 0.005  # between two looks whether an answer is still to wait
STOCK = 60
# Long pauses of the product, made short; what a scene needs beside these it names itself.
CONSTANTS = {
    "workers.broadcast.MAINTENANCE_SECONDS": 0.05,
    "workers.settle.ORPHAN_SECONDS": 0.1,
    "workers.signers.SYNC_SECONDS": 0.2,
    "workers.listener.STANDBY_SECONDS": 0.05,
    "workers.listener.IDLE_SEAL_SECONDS": 0.1,
    "workers.commands.INTERVAL_SECONDS": 0.02,
    "workers.commands.STANDBY_SECONDS": 0.05,
    "workers.sweep.STANDBY_SECONDS": 0.1,
}
# The server ends a transaction that a stopped process holds after this long; by default that takes longer than a scene.
IDLE_IN_TRANSACTION = "400ms"


class Gate(FaultProxy):
    """A node that forgets what it was sent, or withholds logs, when told so; apart from that, as the rules of the proxy say."""

    lose_sends = False  # accepted with its hash, evicted at once
    withhold_logs = False  # ranges come without events; whoever asks by reference gets them
    held = ""  # a method whose answers wait until this names another one, or none

    def _forward(self, upstream: http.client.HTTPConnection, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        while self.held in [call["method"] for call in calls]:
            sleep(HELD_SECONDS)
        made: dict[int, dict[str, Any]] = {}
        for place, call in enumerate(calls):
            answer = self._own(call)
            if answer is not None:
                made[place] = {"jsonrpc": "2.0", "id": call["id"], "result": answer}
        rest = [call for place, call in enumerate(calls) if place not in made]
        found = iter(super()._forward(upstream, rest) if rest else ())
        return [made.get(place) or next(found) for place in range(len(calls))]

    def _own(self, call: dict[str, Any]) -> Any:
        if self.lose_sends and call["method"] == "eth_sendRawTransaction":
            return "0x" + keccak(bytes.fromhex(call["params"][0][2:])).hex()
        if self.withhold_logs and call["method"] == "eth_getLogs" and len(call["params"][0].get("topics", ())) < 2:
            return []
        return None


class Stage:
    """What outlives a scene: the devnet, the nodes before it, requests that nobody has posted yet."""

    def __init__(self, devnet: Devnet) -> None:
        self.devnet, self.deployment = devnet, devnet.deployment
        self.gateways = [Gate(self.deployment.gateway["rpc_urls"][0]) for _ in range(2)]
        self.host = Gate(self.deployment.host["rpc_url"])
        self.traffic = Traffic(self.deployment, operator=1)
        self.stock: dict[Form, list[Submission]] = {}

    def take(self, form: Form) -> Submission:
        """One request, made many at a time."""
        stock = self.stock.setdefault(form, [])
        if not stock:
            stock += self.traffic.build([form] * STOCK)
        return stock.pop()

    def close(self) -> None:
        """End what stands before the nodes."""
        for gate in (*self.gateways, self.host):
            gate.close()
        self.traffic.close()


class Ground:
    """The place, and the words of scenes for what stands in it. `conn` is an autocommit connection of the observer."""

    def __init__(self, stage: Stage, conn: psycopg.Connection[Any], home: Path) -> None:
        self.stage, self.conn, self.home = stage, conn, home
        self.devnet, self.deployment, self.rpc = stage.devnet, stage.deployment, stage.devnet.rpc
        self.gateways, self.host = stage.gateways, stage.host
        self.signer_key = bytes.fromhex(self.deployment.raw["relayer_signer_keys"][1][2:])
        self.signer = LocalSigner(self.signer_key, int(self.deployment.gateway["chain_id"])).address
        self.account = 0
        self.start = 0
        self.made: list[Submission] = []  # of this play
        self._block_at = 0.0

    @property
    def gateway(self) -> Gate:
        """The first node."""
        return self.gateways[0]

    def reset(self) -> None:
        """Nothing in the database, no faults, no transactions left in the pool; from the present head on."""
        from tests.flush import empty_database

        empty_database()
        self.conn.execute("TRUNCATE envelope_meta, envelope_blob")
        for gate in (*self.gateways, self.host):
            gate.clear()
            gate.lose_sends = gate.withhold_logs = False
            gate.held = ""
        self.rpc.call("anvil_dropAllTransactions")
        self.account = insert_account(self.conn, "crash")
        issue_key(self.conn, self.account, KEY)
        self.start = django_settings.GATEWAY_START_BLOCK = self.rpc.head() + 1
        _forget()
        self.made = []
        self.accepted_path.unlink(missing_ok=True)
        for note in self.home.glob("note-*"):
            note.unlink()

    def note(self, name: str) -> Path:
        """A file that a scene's processes and its observer find under this name, for what is no state of the product. None is left of an earlier play."""
        return self.home / f"note-{name}"

    # --- requests

    def submissions(self, forms: Sequence[Form], **options: Any) -> list[Submission]:
        """Requests that were never posted. `options` of Traffic.build."""
        made = self.stage.traffic.build(forms, **options) if options else [self.stage.take(form) for form in forms]
        self.made += made
        return made

    @property
    def accepted_path(self) -> Path:
        """Which requests were answered with 202, and with which job id: what a client remembers."""
        return self.home / "accepted"

    def accepted(self) -> dict[str, str]:
        """Hash of the body -> job id."""
        if not self.accepted_path.exists():
            return {}
        return dict(line.split(" ") for line in self.accepted_path.read_text().splitlines())

    def was_accepted(self, one: Submission) -> bool:
        """Whether its client was told so."""
        return body_key(one) in self.accepted()

    def post_all(self, submissions: Sequence[Submission]) -> None:
        """As clients do, in a process of the scene: each until it is accepted."""
        known = self.accepted()
        for one in submissions:
            if body_key(one) in known:
                continue
            answer = self.client().post(one.path, json.dumps(one.body).encode(), content_type="application/json")
            if answer.status_code == 202:
                with self.accepted_path.open("a") as file:
                    file.write(f"{body_key(one)} {answer.json()['result']['jobId']}\n")

    def client(self) -> Client:
        """A client with the account's key; answers instead of exceptions."""
        return Client(raise_request_exception=False, headers={"x-api-key": KEY})

    # --- what stands in the tables

    def rows(self, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return list(self.conn.execute(statement, parameters).fetchall())

    def value(self, statement: str, parameters: Any = None) -> Any:
        """The first column of the first row, None when there is none."""
        row = self.conn.execute(statement, parameters).fetchone()
        return row[0] if row else None

    def statuses(self) -> dict[str, int]:
        """How many requests are in each state."""
        text = " UNION ALL ".join(f"SELECT status FROM {kind.table}" for kind in REQUESTS)
        return dict(self.rows(f"SELECT status, count(*) FROM ({text}) r GROUP BY 1"))

    def mined(self) -> int:
        """How many nonces are known to be mined. Final ones too: whoever looks late finds them so."""
        return int(self.value("SELECT count(*) FROM nonce_slot WHERE state IN ('mined', 'final')"))

    def ids(self, kind: Kind, status: str) -> list[int]:
        """The rows of a kind in a state."""
        return [row[0] for row in self.rows(f"SELECT id FROM {kind.table} WHERE status = %s ORDER BY id", (status,))]

    def described(self) -> str:
        """Where everything stands, for who reads that a scene does not end."""
        what = {
            "slots": "SELECT nonce, state, kind, subject_id FROM nonce_slot ORDER BY 1",
            "attempts": "SELECT nonce, seq, kind, state, error_class, receipt_status, block_number FROM tx_attempt ORDER BY 1, 2",
            "jobs": "SELECT queue, kind, subject_id, attempt, leased_by, visible_at - clock_timestamp() FROM queue_job",
            "cases": "SELECT kind, subject_id, reason_code, status FROM review_case",
            "commands": "SELECT kind, state, outcome, result FROM command",
            "signers": "SELECT status, status_reason, next_nonce FROM signer",
            "payments": "SELECT id, state, state_reason FROM payment_intent",
        }
        return str({"requests": self.statuses(), **{name: self.rows(text) for name, text in what.items()}})

    # --- the chain

    def mine(self, blocks: int = 1) -> None:
        """More blocks, now."""
        self.rpc.call("anvil_mine", hex(blocks))

    def pass_time(self, blocks: int = 1) -> None:
        """More blocks when it is time: faster than the chain's own clock."""
        if monotonic() >= self._block_at:
            self._block_at = monotonic() + BLOCK_SECONDS
            self.mine(blocks)

    def kms_context(self) -> int:
        """The context that the host chain's configuration calls current."""
        with self.deployment.host_rpc() as rpc:
            abi, address = contract("ProtocolConfig"), self.deployment.host["protocol_config"]
            return int(
                abi.result("getCurrentKmsContextId", rpc.eth_call(address, abi.call("getCurrentKmsContextId")))[0]
            )

    def drop_bands(self, source: int) -> None:
        """Take an originator's bands out of the log, which are empty."""
        pattern = f"^envelope_(meta|blob)_s{source}_b"
        for (name,) in self.rows("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ %s", (pattern,)):
            self.conn.execute(f'DROP TABLE "{name}"')
        self.conn.execute("DELETE FROM envelope_band WHERE source_id = %s", (source,))

    def drop_source(self, source: int) -> None:
        """Take an originator's partitions and rows out of the log."""
        names = self.rows(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ %s",
            (f"^envelope_(meta|blob)_s{source}(_|$)",),
        )
        if names:
            tables = ", ".join(f'"{name}"' for (name,) in names)
            self.conn.execute(f"DROP TABLE IF EXISTS {tables} CASCADE")
        self.conn.execute("DELETE FROM envelope_band WHERE source_id = %s", (source,))

    def fork(self, first: int, *, without_ours: bool = False) -> None:
        """Other blocks from `first` on, with the same transactions in the same places; `without_ours`: not those of our signer.

        The bots' own are always kept: they would not notice that a nonce of theirs is free again.
        """
        ours = "0x" + self.signer.hex()

        def again(depth: int) -> list[list[Any]]:
            numbers = range(first, first + depth)
            blocks = self.rpc.batch([("eth_getBlockByNumber", [hex(number), True]) for number in numbers])
            places = [
                (one["hash"], place)
                for place, block in enumerate(blocks)
                for one in block["transactions"]
                if not (without_ours and one["from"].lower() == ours)
            ]
            raws = self.rpc.batch([("eth_getRawTransactionByHash", [one]) for one, _ in places])
            return [[raw, place] for raw, (_, place) in zip(raws, places, strict=True)]

        take_back(self.rpc, first, again)

    def answered(self, kind: Kind, ref: bytes, upto: int) -> bool:
        """Whether the gateway's answer to a reference, all of it, is in the blocks up to `upto`."""
        event = RESPONSE_EVENTS.get(FORMS[kind], SHARE_EVENT)
        address = self.deployment.gateway["input_verification" if kind is Kind.INPUT_PROOF else "decryption"]
        found = self.rpc.logs([address], [event.topic, "0x" + ref.hex()], self.start, upto)
        return len(found) >= (len(self.deployment.kms) if event is SHARE_EVENT else 1)

    def change(self, table: str, change: str, where: str = "true", parameters: Any = None) -> None:
        """Change rows behind the relayer's back, but none that a process is writing: waiting for it could end in a dead-lock, or last."""
        free = f"SELECT ctid FROM {table} WHERE {where} FOR UPDATE SKIP LOCKED"
        self.conn.execute(f"UPDATE {table} SET {change} WHERE ctid IN ({free})", parameters)

    def age_attempts(self, seconds: float) -> None:
        """Let the database believe that everything was sent so long ago."""
        columns = ("prepared_at", "first_sent_at", "last_sent_at")
        self.change("tx_attempt", ", ".join(f"{name} = {name} - interval '{seconds} seconds'" for name in columns))

    def expire_claims(self) -> None:
        """What a process took from the queue, or of the commands, has run out."""
        self.change("queue_job", "visible_at = clock_timestamp()", "leased_by IS NOT NULL")
        self.change("command", "claim_until = clock_timestamp()", "state = 'claimed'")
        self.change("idempotency_record", "lease_until = clock_timestamp()", "response_status IS NULL")

    def open_commands(self) -> int:
        """Commands that nobody has carried out yet: a scene is not over before, whatever its rows say."""
        return int(self.value("SELECT count(*) FROM command WHERE state <> 'consumed'"))

    def hurry_commands(self) -> None:
        """A command that was claimed a second ago may be claimed again: who claimed it may be gone."""
        old = "state = 'claimed' AND claim_until < clock_timestamp() + interval '59 seconds'"
        self.change("command", "claim_until = clock_timestamp()", old)

    def hurry_jobs(self) -> None:
        """A job that was put off for long, because every death counts as one of its attempts, need not wait for that."""
        off = (
            "leased_by IS NULL AND queue IN ('ready', 'send') AND visible_at > clock_timestamp() + interval '2 seconds'"
        )
        self.change("queue_job", "visible_at = clock_timestamp()", off)

    def end_waits(self) -> None:
        """No job waits for its time."""
        self.change("queue_job", "visible_at = clock_timestamp()", "leased_by IS NULL")

    def make_overdue(self, kind: Kind, where: str, parameters: Any = None, late: str = "0 seconds") -> None:
        """The deadline of these requests of a kind was so long ago."""
        self.change(kind.table, f"deadline_at = clock_timestamp() - interval '{late}'", where, parameters)

    def expire_leases(self) -> None:
        """Every execution lease has run out."""
        self.conn.execute("UPDATE exec_lease SET lease_until = clock_timestamp() - interval '1 second'")


def body_key(one: Submission) -> str:
    """What names a submission in the clients' memory."""
    return keccak(json.dumps(one.body, sort_keys=True).encode()).hex()


@contextmanager
def staged(ground: Ground, scene: type[Scene], settings: Any) -> Iterator[None]:
    """Settings and constants for a scene."""
    gateway, host = ground.deployment.gateway, ground.deployment.host
    wanted = {
        "GATEWAY_CHAIN_ID": gateway["chain_id"],
        "GATEWAY_RPC_URLS": [gate.url for gate in ground.gateways[: scene.endpoints]],
        "DECRYPTION_ADDRESS": gateway["decryption"],
        "INPUT_VERIFICATION_ADDRESS": gateway["input_verification"],
        "FEE_TOKEN_ADDRESS": gateway["fee_token"],
        "GATEWAY_START_BLOCK": ground.rpc.head() + 1,
        "GATEWAY_SIGNER_KEYS": ["0x" + ground.signer_key.hex()],
        "HOST_CHAINS": [
            {
                "chain_id": host["chain_id"],
                "url": ground.host.url,
                "acl_address": host["acl"],
                "protocol_config_address": host["protocol_config"],
                "kms_generation_address": host["kms_generation"],
            }
        ],
        "PROTOCOL_CONFIG_ADDRESS": host["protocol_config"],
        "KMS_GENERATION_ADDRESS": host["kms_generation"],
        "PAYMENT_TOKENS": gateway["payment_tokens"] if Kind.PAYMENT in scene.kinds else [],
        "READINESS_INTERVAL_SECONDS": 0.3,
        "JOB_LEASE_SECONDS": 2,
        "API_AUTH": "required",
        "MIDDLEWARE": [name for name in settings.MIDDLEWARE if "whitenoise" not in name],
        **scene.settings,
    }
    for name, value in wanted.items():
        setattr(settings, name, value)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {**CONSTANTS, **scene.constants}.items():
            module, _, attribute = name.rpartition(".")
            patch.setattr(import_module(module), attribute, value)
        from requests_app.store import session

        limits = {
            role: {**found, "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION}
            for role, found in session._TIMEOUTS.items()
        }
        patch.setattr(session, "_TIMEOUTS", limits)
        web = {"options": f"-c lock_timeout=2s -c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION}"}
        patch.setitem(connections["default"].settings_dict, "OPTIONS", web)
        _forget()
        stack.callback(_forget)
        _load()
        yield


def _load() -> None:
    """What every process needs is loaded once, here."""
    import workers.chain.key_material  # noqa: F401 - web3 alone takes two seconds
    from workers.chain import open_clients

    assert Client(raise_request_exception=False).get("/v2/input-proof/0").status_code in (401, 404)
    open_clients(config()).close()


def _forget() -> None:
    for cached in (config.cache_clear, forget_settings, forget_keys):
        cached()
