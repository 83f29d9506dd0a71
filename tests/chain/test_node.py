"""The whole chain layer against real nodes and the compiled contracts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from requests_app.api import signatures
from requests_app.states import Kind, ReqType
from requests_app.typed_data import recover
from tests.chain.conftest import FORM_KINDS, Chains, canonical, raw
from tests.waiting import wait_until
from workers.chain.acl import acl_checks
from workers.chain.calldata import ContractCall, encode_readiness, encode_request
from workers.chain.errors import SendClass, classify_send, revert_of
from workers.chain.events import EventKind, decode_payload
from workers.chain.hexdata import hex_data
from workers.chain.rpc_errors import Failed, Ok, RpcError
from workers.chain.signer import LocalSigner
from workers.devnet.traffic import FORMS

pytestmark = pytest.mark.stack
WANTED = {
    "input_proof": EventKind.PROOF_REQUESTED,
    "public_decrypt": EventKind.PUBLIC_DECRYPTION_REQUESTED,
    "user_decrypt": EventKind.USER_DECRYPTION_REQUESTED,
    "delegated": EventKind.USER_DECRYPTION_REQUESTED,
    "unified": EventKind.USER_DECRYPTION_REQUESTED,
}
DECRYPTS = [form for form in FORMS if form != "input_proof"]


def send(chains: Chains, *raws: bytes) -> list[SendClass]:
    calls = [("eth_sendRawTransaction", [hex_data(item)]) for item in raws]
    return [classify_send(answer) for answer in chains.clients.endpoints.send().batch(calls)]


def value(answer: Any) -> Any:
    assert isinstance(answer, Ok), answer
    return answer.value


def next_nonce(chains: Chains, signer: LocalSigner | None = None) -> int:
    account = value(chains.clients.gateway.accounts([(signer or chains.signer).address])[0])
    assert isinstance(account.pending, int)
    return account.pending


def test_every_form_is_encoded_estimated_signed_sent_mined_and_found_in_the_log(chains: Chains) -> None:
    gateway, signer = chains.clients.gateway, chains.signer
    submissions = chains.traffic.build(FORMS)
    calls = [
        ContractCall(*encode_request(*FORM_KINDS[one.form], canonical(one), chains.config.gateway))
        for one in submissions
    ]
    limits = [value(answer) for answer in gateway.estimate_gas(signer.address, calls)]
    fees, first = gateway.fees(), next_nonce(chains)
    signed = [
        signer.sign(first + place, call.to, call.data, gas, fees.max_fee_per_gas, fees.max_priority_fee)
        for place, (call, gas) in enumerate(zip(calls, limits, strict=True))
    ]
    start = gateway.head_number()
    assert send(chains, *(item for item, _ in signed)) == [SendClass.ACCEPTED] * 5
    hashes = [tx_hash for _, tx_hash in signed]
    wait_until(lambda: all(value(answer) for answer in gateway.receipts(hashes)), 60)
    receipts = [value(answer) for answer in gateway.receipts(hashes)]
    assert [(receipt.status, receipt.to) for receipt in receipts] == [(1, call.to) for call in calls]
    found = gateway.events(start, gateway.head_number())
    assert not found.bad
    by_hash = {tx_hash: [e for e in found.envelopes if e.tx_hash == tx_hash] for tx_hash in hashes}
    for submission, tx_hash in zip(submissions, hashes, strict=True):
        assert {envelope.kind for envelope in by_hash[tx_hash]} == {WANTED[submission.form]}
        refs = {decode_payload(envelope.kind, envelope.payload).ref for envelope in by_hash[tx_hash]}
        assert len(refs) == 1
        assert refs == {envelope.ref for envelope in by_hash[tx_hash]}
        assert gateway.events_of(list(refs), start, gateway.head_number()).envelopes == by_hash[tx_hash]
    views = [value(answer) for answer in gateway.transactions(hashes)]
    assert [view.nonce for view in views] == list(range(first, first + 5))
    decrypt_ref, proof_ref = by_hash[hashes[1]][0].ref, by_hash[hashes[0]][0].ref
    assert gateway.is_decryption_done([decrypt_ref]) == [Ok(False)]
    assert gateway.is_proof_verified([proof_ref]) == [Ok(False)]
    assert gateway.is_proof_rejected([proof_ref]) == [Ok(False)]


def test_readiness_follows_the_commit_of_ciphertexts(chains: Chains) -> None:
    ready, unready = chains.traffic.build(DECRYPTS), chains.traffic.build(DECRYPTS, set_up=False)
    calls = [encode_readiness(FORM_KINDS[one.form][0], canonical(one)) for one in [*ready, *unready]]
    found = [value(answer) for answer in chains.clients.gateway.is_ready(calls)]
    assert found == [True] * 4 + [False] * 4


def test_acl_allows_what_was_granted_and_names_what_was_not(chains: Chains) -> None:
    host = chains.clients.hosts[8009]
    granted, refused = chains.traffic.build(DECRYPTS), chains.traffic.build(DECRYPTS, set_up=False)
    checks = [acl_checks(*FORM_KINDS[one.form], canonical(one))[8009] for one in [*granted, *refused]]
    found = [value(answer) for answer in host.acl_check(checks)]
    assert found == [[]] * 4 + checks[4:]


def digest_and_signer(form: ReqType, body: dict[str, Any]) -> tuple[bytes, bytes]:
    if form is ReqType.UNIFIED:
        return signatures.unified_digest(body, 8009), raw(body["user"])
    return signatures.legacy_digest(form, body)


@pytest.mark.parametrize("form", ["user_decrypt", "delegated", "unified"])
def test_a_wrong_signature_is_a_decoded_revert_and_ours_recovers(
    chains: Chains, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the contract refuses, the API has refused before."""
    monkeypatch.setattr(signatures, "config", lambda: chains.config)
    (submission,) = chains.traffic.build([form])
    kind, req_type = FORM_KINDS[form]
    body = canonical(submission)
    assert req_type is not None
    digest, signer = digest_and_signer(req_type, body)
    assert recover(digest, raw(body["signature"])) == signer
    damaged = {**body, "public_key": "0x1234"}
    digest, signer = digest_and_signer(req_type, damaged)
    assert recover(digest, raw(body["signature"])) != signer
    call = ContractCall(*encode_request(kind, req_type, damaged, chains.config.gateway))
    (answer,) = chains.clients.gateway.estimate_gas(chains.signer.address, [call])
    assert isinstance(answer, Failed)
    revert = revert_of(answer.error)
    assert revert is not None
    assert (revert.name, revert.label, revert.field) == ("InvalidUserSignature", "validation_failed", "signature")


def test_missing_fee_tokens_are_a_decoded_revert(chains: Chains) -> None:
    pauper = chains.deployment.users[3]
    (submission,) = chains.traffic.build(["public_decrypt"])
    to, data = encode_request(Kind.PUBLIC_DECRYPT, None, canonical(submission), chains.config.gateway)
    (answer,) = chains.clients.gateway.estimate_gas(raw(pauper.address), [ContractCall(to, data)])
    assert isinstance(answer, Failed)
    revert = revert_of(answer.error)
    assert revert is not None
    assert revert.label in ("insufficient_balance", "insufficient_allowance")
    assert revert.operator


def test_what_the_node_says_to_bad_sends_is_classified(chains: Chains) -> None:
    signer = LocalSigner(chains.config.gateway.signer_keys[1], 654321)
    fees, nonce, to = chains.clients.gateway.fees(), next_nonce(chains, signer), b"\x77" * 20
    price = (21000, fees.max_fee_per_gas * 4, fees.max_priority_fee + 1000)
    gapped, _ = signer.sign(nonce + 2, to, b"", *price)
    # A gapped transaction waits in the pool, so the next three find it there for certain.
    assert send(chains, gapped) == [SendClass.ACCEPTED]
    assert send(chains, gapped) == [SendClass.ALREADY_KNOWN]
    assert send(chains, signer.sign(nonce + 2, to, b"\x01", 50000, *price[1:])[0]) == [
        SendClass.REPLACEMENT_UNDERPRICED
    ]
    assert send(chains, signer.sign(nonce + 3, to, b"", 21000, 1, 1)[0]) == [SendClass.UNDERPRICED]
    assert send(chains, signer.sign(nonce + 3, to, b"", 100, *price[1:])[0]) == [SendClass.REJECTED_PAYLOAD]
    penniless = LocalSigner(b"\x55" * 32, 654321)
    assert send(chains, penniless.sign(0, to, b"", *price)[0]) == [SendClass.INSUFFICIENT_FUNDS]
    foreign = LocalSigner(chains.config.gateway.signer_keys[1], 5)
    assert send(chains, foreign.sign(nonce, to, b"", *price)[0]) == [SendClass.REJECTED_PAYLOAD]
    filling = [signer.sign(nonce + place, to, b"", *price) for place in (0, 1)]
    assert send(chains, *(item for item, _ in filling)) == [SendClass.ACCEPTED] * 2
    wait_until(lambda: value(chains.clients.gateway.accounts([signer.address])[0]).latest == nonce + 3, 60)
    assert send(chains, signer.sign(nonce, to, b"\x01", 50000, *price[1:])[0]) == [SendClass.NONCE_TOO_LOW]


def test_identity_heads_and_accounts(chains: Chains) -> None:
    gateway, host = chains.clients.gateway, chains.clients.hosts[8009]
    assert hex_data(gateway.genesis_hash()) == chains.deployment.gateway["genesis_hash"]
    assert hex_data(host.genesis_hash()) == chains.deployment.host["genesis_hash"]
    assert (gateway.chain_id(), host.chain_id()) == (654321, 8009)
    wait_until(lambda: gateway.finalized().number > 2, 60)
    head = gateway.head()
    assert gateway.finalized().number < head.number
    blocks = [value(answer) for answer in gateway.blocks(range(head.number - 2, head.number + 1))]
    assert all(later.parent_hash == earlier.hash for earlier, later in itertools.pairwise(blocks))
    account = value(gateway.accounts([chains.signer.address])[0])
    assert account.balance > 10**18
    assert value(gateway.fee_balances([chains.signer.address])[0]) > 0
    payment = raw(chains.deployment.gateway["payment"])
    assert value(gateway.fee_allowances([chains.signer.address], payment)[0]) > 0


def test_key_material_threshold_and_wallets(chains: Chains) -> None:
    host = chains.clients.hosts[8009]
    anchor = host.head_number()
    wait_until(lambda: host.finalized().number >= anchor, 60)
    material = host.key_material()
    assert hex_data(material.context_id) == chains.deployment.raw["kms_context_id"]
    node = chains.deployment.raw["kms"][0]
    assert (material.storage_url, material.storage_prefix) == (node["storage_url"], node["storage_prefix"])
    assert host.threshold_for_context(int.from_bytes(material.context_id, "big")) == 9
    with pytest.raises(RpcError) as caught:
        host.threshold_for_context(5)
    revert = revert_of(caught.value)
    assert revert is not None
    assert revert.name == "InvalidKmsContext"
    assert host.wallet_accepts(raw(chains.deployment.users[0].address), b"\x01" * 32, b"\x02" * 65) is False
    contract, digest = raw(chains.deployment.host["contract_wallet"]), b"\x01" * 32
    owner, stranger = (LocalSigner(user.key, 8009).sign_digest(digest) for user in chains.deployment.users[:2])
    verdicts = [host.wallet_accepts(contract, digest, one[:64] + bytes([27 + one[64]])) for one in (owner, stranger)]
    assert verdicts == [True, False]
