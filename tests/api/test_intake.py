"""How the five forms are read: structure errors, spellings, golden content ids; fhevm_http 4, 19.1, 20.1 (#14 to #17)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from requests_app.api import intake, rules
from requests_app.identity import content_hash
from requests_app.states import Kind, ReqType
from tests.api import bodies
from tests.api.reading import ALL, DD, IP, PD, UD, V3, Form, details, key_paths, read


@ALL
def test_20_1_14_and_16_broken_json(form: Form) -> None:
    good = bodies.raw(form[1]())
    for broken in (b"this is not json", good[:-1], good.replace(b", ", b" ", 1), b""):
        assert details(form, broken, "malformed_json") == set()


@ALL
def test_20_1_17_each_required_key_removed_in_turn(form: Form) -> None:
    for path in key_paths(form[1]()):
        body: Any = form[1]()
        place = body
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        assert details(form, body, "missing_fields") == {(path[-1], "Required but missing")}


@ALL
def test_each_string_as_null_or_number_is_a_type_error(form: Form) -> None:
    for path in key_paths(form[1]()):
        if path[-1] in ("contractChainId", "contractsChainId"):
            continue
        body: Any = form[1]()
        place = body
        for step in path[:-1]:
            place = place[step]
        wanted = rules_wanted(place[path[-1]])
        for value in (None, 7):
            place[path[-1]] = value
            assert details(form, body) == {("request", wanted)}


def rules_wanted(value: Any) -> str:
    return "Value must be a string" if isinstance(value, str) else "Invalid data type"


def test_several_problems_are_reported_together() -> None:
    body = bodies.direct(signature="zz", userAddress="", extraData="x")
    assert details(UD, body) == {
        ("userAddress", rules.MUST_START),
        ("signature", rules.WRONG_LENGTH_SIGNATURE),
        ("signature", rules.NOT_HEX),
        ("extraData", rules.WRONG_EXTRA_DATA),
    }


@pytest.mark.parametrize("value", [None, True, [], {}])
@pytest.mark.parametrize(
    ("form", "field"), [(IP, "contractChainId"), (UD, "contractsChainId"), (DD, "contractsChainId")]
)
def test_chain_ids_of_other_types_are_malformed(form: Form, field: str, value: Any) -> None:
    assert details(form, form[1](**{field: value}), "malformed_json") == set()


@pytest.mark.parametrize("value", ["8009", "+8009", "0x1f49", "0x1F49", "0x+1f49", "00008009", 8009])
def test_spellings_of_a_chain_id_hash_alike(value: Any) -> None:
    taken = read(IP, bodies.input_proof(contractChainId=value))
    assert taken.body["contract_chain_id"] == "8009"
    assert content_hash(Kind.INPUT_PROOF, None, taken.body).hex() == (
        "0df8a78a73ffd52581c7ca6bc41a22b293af975fae715a578a84dcde82c4c6a9"
    )


@pytest.mark.parametrize(
    ("form", "changes", "expected"),
    [
        (PD, {}, "2a236b87fba5d2e1ec32bda45407d3189fef7d5fe16329d75f161ebc4e1e0fc6"),
        (
            PD,
            {"ciphertextHandles": [bodies.H2, bodies.H1]},
            "cb346c697c5ef4499d200e2e1022a7d6a15543b56c951171e0d0906fa557fe9e",
        ),
        (UD, {}, "4e00f40a6f9dea6fd4b7138ab5fc564f97a2e7101e280decab15c8b3aa19cb8d"),
        (UD, {"signature": "cd" * 65}, "4e00f40a6f9dea6fd4b7138ab5fc564f97a2e7101e280decab15c8b3aa19cb8d"),
        (DD, {}, "b6debfdfe8bff03927198b31b02bf9532eb63b1672cf165b046413cc16e1b862"),
        (V3, {}, "fe8a4e42f98d6a9c223f6c144b64723d3b9fbda2dd58f5ad3ad9a97b4a14d0f1"),
        (V3, {"payload": {"allowedContracts": []}}, "e2b59b7242c5244e79e9c5a44f40b8f81686e1b16de9a65aedd71f771d1ccea0"),
    ],
)
def test_19_1_bodies_hash_to_the_golden_ids(form: Form, changes: dict[str, Any], expected: str) -> None:
    taken = read(form, form[1](**changes))
    assert content_hash(taken.kind, taken.req_type, taken.body).hex() == expected


def test_letter_case_does_not_matter() -> None:
    upper = bodies.direct(
        handleContractPairs=[{"handle": "0x" + bodies.H1[2:].upper(), "contractAddress": bodies.CONTRACT}],
        publicKey="ABCD",
    )
    assert read(UD, upper).body == read(UD, bodies.direct()).body


def test_short_public_handles_are_padded_and_long_ones_are_a_500() -> None:
    taken = read(PD, bodies.public_decrypt(ciphertextHandles=["0x", "0x01"]))
    assert taken.body["handles"] == ["0x" + "00" * 32, "0x" + "00" * 31 + "01"]
    assert taken.host_chains() == [0, 0]
    assert details(PD, bodies.public_decrypt(ciphertextHandles=["0x" + "00" * 33]), "internal_server_error") == set()


@pytest.mark.parametrize("extra", ["0x00", bodies.CONTEXT_V1, bodies.CONTEXT_V2])
def test_extra_data_versions(extra: str) -> None:
    assert read(PD, bodies.public_decrypt(extraData=extra)).body["extra_data"] == extra


@pytest.mark.parametrize(
    ("text", "value"), [("", "0"), ("0x10", "16"), ("0o17", "15"), ("0b101", "5"), ("1_000", "1000")]
)
def test_v2_timestamps_are_read_as_loosely_as_upstream(text: str, value: str) -> None:
    assert read(DD, bodies.delegated(startTimestamp=text)).body["start_timestamp"] == value


def test_unknown_keys_are_ignored_on_v2_and_inside_v3_lists() -> None:
    plain, extra = bodies.direct(), bodies.direct(surplus={"a": [1]})
    extra["handleContractPairs"][0]["surplus"] = 1
    assert read(UD, extra) == read(UD, plain)
    loose = bodies.unified()
    strict = deepcopy(loose)
    loose["attestedPayload"]["handles"][0]["surplus"] = 1
    loose["attestedPayload"]["requestValidity"]["surplus"] = None
    assert read(V3, loose) == read(V3, strict)


def test_v3_probe_with_an_empty_object() -> None:
    assert details(V3, b"{}", "missing_fields") == {("attestationType", "Required but missing")}


@pytest.mark.parametrize("signature", ["", "0x"])
def test_v3_takes_an_empty_signature(signature: str) -> None:
    assert read(V3, bodies.unified(signature=signature)).body["signature"] == "0x"


def test_v1_recognises_the_form_by_itskey_paths() -> None:
    for maker, req_type in (
        (bodies.direct, ReqType.DIRECT),
        (bodies.delegated, ReqType.DELEGATED),
        (bodies.unified, ReqType.UNIFIED),
    ):
        assert intake.any_user_decrypt(bodies.raw(maker())).req_type is req_type
    any_form: Form = (intake.any_user_decrypt, bodies.direct)
    assert details(any_form, b"{}", "missing_fields") == {("handleContractPairs", "Required but missing")}
    assert details(any_form, b"[]", "malformed_json") == set()
