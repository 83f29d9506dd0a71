"""Field rules of the five forms: fhevm_http 5, 6, 20.1 (#14 to #17), 20.2 and 20.3 (#7 to #16), without a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requests_app.api import intake, rules
from requests_app.api.refusals import Refused
from requests_app.identity import content_hash
from requests_app.states import Kind, ReqType
from tests.api import bodies

Form = tuple[intake.Reader, Callable[..., dict[str, Any]]]
IP: Form = (intake.input_proof, bodies.input_proof)
PD: Form = (intake.public_decrypt, bodies.public_decrypt)
UD: Form = (intake.direct, bodies.direct)
DD: Form = (intake.delegated, bodies.delegated)
V3: Form = (intake.unified, bodies.unified)
ALL = pytest.mark.parametrize("form", [IP, PD, UD, DD, V3], ids=["IP", "PD", "UD", "DD", "V3"])

CHAIN = rules.NOT_A_CHAIN_ID
EXTRA = rules.WRONG_EXTRA_DATA
UNTAGGED_V1 = "0x01" + "06" + "00" * 31
UNTAGGED_V2 = "0x02" + "07" + "00" * 31 + "07" + "00" * 31


def read(form: Form, body: Any) -> intake.Intake:
    return form[0](body if isinstance(body, bytes) else bodies.raw(body))


def details(form: Form, body: Any, label: str = "validation_failed") -> set[tuple[str, str]]:
    with pytest.raises(Refused) as caught:
        read(form, body)
    assert caught.value.label == label
    found = [(detail.field, detail.issue) for detail in caught.value.details]
    names = ", ".join(field for field, _ in found)
    if label == "validation_failed":
        noun = "field" if len(found) == 1 else "fields"
        assert caught.value.message == f"Validation failed for {len(found)} {noun} in the request: {names}"
    if label == "missing_fields":
        assert caught.value.message == f"Missing 1 required field in the request: {names}"
    return set(found)


@ALL
def test_20_1_14_and_16_broken_json(form: Form) -> None:
    good = bodies.raw(form[1]())
    for broken in (b"this is not json", good[:-1], good.replace(b", ", b" ", 1), b""):
        assert details(form, broken, "malformed_json") == set()


def _keys(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [step for key in value for step in [(*path, key), *_keys(value[key], (*path, key))]]
    if isinstance(value, list) and value:
        return _keys(value[0], (*path, 0))
    return []


@ALL
def test_20_1_17_each_required_key_removed_in_turn(form: Form) -> None:
    for path in _keys(form[1]()):
        body: Any = form[1]()
        place = body
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        assert details(form, body, "missing_fields") == {(path[-1], "Required but missing")}


@ALL
def test_each_string_as_null_or_number_is_a_type_error(form: Form) -> None:
    for path in _keys(form[1]()):
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


INVALID: list[tuple[Form, str, Any, str]] = [
    *[
        (form, "contractChainId" if form is IP else "contractsChainId", value, CHAIN)
        for form in (IP, UD, DD)
        for value in (
            "",
            "abc123",
            "0xzzz",
            " 8009",
            "8_009",
            "-1",
            "8009\n",
            8009.5,
            -1,
            2**64,
            str(2**64),
            "0x1" + "0" * 16,
            "٣",
        )
    ],
    *[
        (form, field, value, issue)
        for form, field in (
            (IP, "contractAddress"),
            (IP, "userAddress"),
            (UD, "userAddress"),
            (DD, "delegatorAddress"),
            (DD, "delegateAddress"),
        )
        for value, issue in (
            ("", rules.MUST_START),
            ("11" * 20, rules.MUST_START),
            ("0xfds", rules.WRONG_LENGTH_42),
            ("0x" + "1" * 41, rules.WRONG_LENGTH_42),
            ("0x" + "1" * 39 + "z", rules.NOT_HEX_ADDRESS),
            ("0x" + "g" * 40, rules.NOT_HEX_ADDRESS),
            ("0x" + "1" * 39 + "\n", rules.NOT_HEX_ADDRESS),
        )
    ],
    *[
        (form, "contractAddresses", value, issue)
        for form in (UD, DD)
        for value, issue in (
            ([], rules.EMPTY),
            (["0xfds"], rules.WRONG_LENGTH_42),
            ([bodies.CONTRACT, ""], rules.MUST_START),
        )
    ],
    (IP, "ciphertextWithInputVerification", "", rules.EMPTY),
    (IP, "ciphertextWithInputVerification", "abc", rules.NOT_HEX),
    (IP, "ciphertextWithInputVerification", "zz", rules.NOT_HEX),
    (IP, "ciphertextWithInputVerification", "ab cd", rules.NOT_HEX),
    (IP, "ciphertextWithInputVerification", "0xabcdef", rules.MUST_NOT_START),
    (PD, "ciphertextHandles", [], rules.EMPTY),
    (PD, "ciphertextHandles", ["0xabc"], rules.NOT_HEX),
    (PD, "ciphertextHandles", [bodies.H1, "0xzz"], rules.NOT_HEX),
    (PD, "ciphertextHandles", [""], rules.MUST_START),
    (PD, "ciphertextHandles", ["abcd"], rules.MUST_START),
    *[
        (form, "handleContractPairs", value, issue)
        for form in (UD, DD)
        for value, issue in (
            ([], rules.EMPTY),
            ([{"handle": "0x00", "contractAddress": bodies.CONTRACT}], rules.WRONG_LENGTH_HANDLE),
            ([{"handle": bodies.H1 + "00", "contractAddress": bodies.CONTRACT}], rules.WRONG_LENGTH_HANDLE),
            ([{"handle": bodies.H1[:-1] + "z", "contractAddress": bodies.CONTRACT}], rules.NOT_HEX),
            ([{"handle": bodies.H1[2:], "contractAddress": bodies.CONTRACT}], rules.MUST_START),
            ([{"handle": "", "contractAddress": bodies.CONTRACT}], rules.MUST_START),
            ([{"handle": bodies.H1, "contractAddress": "0x12"}], rules.WRONG_LENGTH_42),
        )
    ],
    *[
        (form, "signature", value, issue)
        for form in (UD, DD)
        for value, issue in (
            ("ab" * 64, rules.WRONG_LENGTH_SIGNATURE),
            ("ab" * 66, rules.WRONG_LENGTH_SIGNATURE),
            ("", rules.WRONG_LENGTH_SIGNATURE),
            ("0x" + "ab" * 64, rules.MUST_NOT_START),
            ("zz" * 65, rules.NOT_HEX),
        )
    ],
    *[
        (form, "publicKey", value, issue)
        for form in (UD, DD)
        for value, issue in (("0xabcd", rules.MUST_NOT_START), ("abzz", rules.NOT_HEX), ("", rules.EMPTY))
    ],
    *[
        (form, "extraData", value, EXTRA)
        for form in (IP, PD, UD, DD)
        for value in ("", "0x", "0x01", "invalid", "0x000")
    ],
    *[
        (form, "extraData", value, EXTRA)
        for form in (PD, UD, DD)
        for value in (
            UNTAGGED_V1,
            UNTAGGED_V2,
            bodies.CONTEXT_V1 + "00",
            bodies.CONTEXT_V2[:-2],
            "0X00",
            bodies.CONTEXT_V1.replace("0x", "0X"),
        )
    ],
    (IP, "extraData", bodies.CONTEXT_V1, EXTRA),
    (UD, "requestValidity", {"startTimestamp": str(int(time.time()) + 3600), "durationDays": "1"}, rules.IN_THE_FUTURE),
    (UD, "requestValidity", {"startTimestamp": str(2**70), "durationDays": "1"}, rules.IN_THE_FUTURE),
    (UD, "requestValidity", {"startTimestamp": "soon", "durationDays": "1"}, rules.NOT_U256),
    (UD, "requestValidity", {"startTimestamp": "9" * 5000, "durationDays": "1"}, rules.NOT_U256),
    (UD, "requestValidity", {"startTimestamp": "1", "durationDays": str(2**32)}, rules.NOT_U32),
    (UD, "requestValidity", {"startTimestamp": "1", "durationDays": "1.5"}, rules.NOT_U32),
    (DD, "startTimestamp", "4102444800", rules.IN_THE_FUTURE),
    (DD, "durationDays", "-1", rules.NOT_U32),
]


@pytest.mark.parametrize(("form", "field", "value", "issue"), INVALID)
def test_20_2_invalid_values(form: Form, field: str, value: Any, issue: str) -> None:
    assert (field, issue) in details(form, form[1](**{field: value}))


def test_several_problems_are_reported_together() -> None:
    body = bodies.direct(signature="zz", userAddress="", extraData="x")
    assert details(UD, body) == {
        ("userAddress", rules.MUST_START),
        ("signature", rules.WRONG_LENGTH_SIGNATURE),
        ("signature", rules.NOT_HEX),
        ("extraData", EXTRA),
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


NOW = int(time.time())


@pytest.mark.parametrize(
    ("changes", "field", "issue"),
    [
        (
            {"attestationType": "x"},
            "attestationType",
            "Unsupported attestationType; expected one of: [eip712-unified-user-decrypt-v1]",
        ),
        ({"payload": {"version": "1.0"}}, "attestedPayload.version", 'Unsupported version; expected "2.0"'),
        ({"payload": {"type": "x"}}, "attestedPayload.type", 'Unsupported payload type; expected "user_decryption"'),
        ({"payload": {"handles": []}}, "attestedPayload.handles", rules.EMPTY),
        (
            {"payload": {"handles": [{"ctHandle": "0x", "contractAddress": "", "ownerAddress": ""}]}},
            "attestedPayload.handles",
            rules.WRONG_LENGTH_HANDLE,
        ),
        ({"payload": {"userAddress": "0x"}}, "attestedPayload.userAddress", rules.WRONG_LENGTH_42),
        ({"payload": {"allowedContracts": ["x"]}}, "attestedPayload.allowedContracts", rules.MUST_START),
        (
            {"payload": {"requestValidity": {"startTimestamp": str(NOW - 100), "durationSeconds": "99"}}},
            "attestedPayload.requestValidity",
            "requestValidity window has already expired",
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": "0x1", "durationSeconds": str(2**63)}}},
            "attestedPayload.requestValidity",
            "startTimestamp must be a valid u64 number",
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": "", "durationSeconds": str(2**63)}}},
            "attestedPayload.requestValidity",
            "startTimestamp must be a valid u64 number",
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": str(NOW + 900), "durationSeconds": "99"}}},
            "attestedPayload.requestValidity",
            rules.IN_THE_FUTURE,
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": "1", "durationSeconds": str(2**64)}}},
            "attestedPayload.requestValidity",
            rules.NOT_U64,
        ),
        ({"payload": {"publicKey": "0x"}}, "attestedPayload.publicKey", rules.EMPTY),
        ({"payload": {"publicKey": "abcd"}}, "attestedPayload.publicKey", rules.MUST_START),
        ({"payload": {"extraData": UNTAGGED_V1}}, "attestedPayload.extraData", EXTRA),
        ({"payload": {"extraData": UNTAGGED_V2}}, "attestedPayload.extraData", EXTRA),
        ({"signature": "abcd"}, "signature", rules.MUST_START),
        ({"signature": "0xabc"}, "signature", rules.NOT_HEX),
        ({"extraneousField": 1}, "extraneousField", "Unknown field"),
        ({"payload": {"surplus": 1}}, "surplus", "Unknown field"),
    ],
)
def test_20_3_v3_fields(changes: dict[str, Any], field: str, issue: str) -> None:
    assert details(V3, bodies.unified(**changes)) == {(field, issue)}


def test_v3_probe_with_an_empty_object() -> None:
    assert details(V3, b"{}", "missing_fields") == {("attestationType", "Required but missing")}


@pytest.mark.parametrize("signature", ["", "0x"])
def test_v3_takes_an_empty_signature(signature: str) -> None:
    assert read(V3, bodies.unified(signature=signature)).body["signature"] == "0x"


def test_v1_recognises_the_form_by_its_keys() -> None:
    for maker, req_type in (
        (bodies.direct, ReqType.DIRECT),
        (bodies.delegated, ReqType.DELEGATED),
        (bodies.unified, ReqType.UNIFIED),
    ):
        assert intake.any_user_decrypt(bodies.raw(maker())).req_type is req_type
    any_form: Form = (intake.any_user_decrypt, bodies.direct)
    assert details(any_form, b"{}", "missing_fields") == {("handleContractPairs", "Required but missing")}
    assert details(any_form, b"[]", "malformed_json") == set()


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=70)
    | st.text("0123456789abcdefxX+_ ", max_size=70).map(lambda text: "0x" + text)
    | st.sampled_from(["", "0x", bodies.H1, bodies.USER, "9" * 5000, "\x00", "٣٤", str(2**256)])
)


@pytest.mark.parametrize("form", [IP, PD, UD, DD, V3], ids=["IP", "PD", "UD", "DD", "V3"])
@given(data=st.data())
def test_i12_no_value_anywhere_is_a_500(form: Form, data: st.DataObject) -> None:
    """A mutated body is taken whole, with a content hash, or refused with a label of its own fault."""
    body: Any = form[1]()
    for path in data.draw(st.lists(st.sampled_from(_keys(body)), min_size=1, max_size=3, unique=True)):
        place = body
        try:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = data.draw(scalars | st.lists(scalars, max_size=3))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has replaced this branch
    try:
        taken = read(form, body)
    except Refused as refused:
        long_handle = form is PD and refused.label == "internal_server_error"
        assert long_handle or refused.label in ("malformed_json", "missing_fields", "validation_failed")
    else:
        assert len(content_hash(taken.kind, taken.req_type, taken.body)) == 32
        assert all(0 <= chain_id < 2**64 for chain_id in taken.host_chains())
