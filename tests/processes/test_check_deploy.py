"""`manage.py check --deploy` with the surroundings that the README names for real chains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ADDRESS = "0x" + "11" * 20
PRODUCTION = {
    "DATABASE_URL": "postgres://relayer@127.0.0.1:1/relayer",
    "SECRET_KEY": "".join(map(chr, range(48, 122))),
    "ALLOWED_HOSTS": "relayer.example.com",
    "BEHIND_TLS": "1",
    "GATEWAY_CHAIN_ID": "1",
    "GATEWAY_RPC_URLS": "https://rpc.example.com",
    "DECRYPTION_ADDRESS": ADDRESS,
    "INPUT_VERIFICATION_ADDRESS": ADDRESS,
    "FEE_TOKEN_ADDRESS": ADDRESS,
    "GATEWAY_SIGNER_KEYS": "0x" + "12" * 32,
    "HOST_CHAINS": f'[{{"chain_id":1,"url":"https://eth.example.com","acl_address":"{ADDRESS}"}}]',
}


def check(tmp_path: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **PRODUCTION, "RELAYER_VAR": str(tmp_path), "RELAYER_DEPLOYMENT": "", **changes}
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip


def test_production_is_clean(tmp_path: Path) -> None:
    """It warned of a route that the documentation's generator could not guess."""
    found = check(tmp_path)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HOST_CHAINS", '[{"chain_id":1,"url":"https://key:pa55word@eth.example.com"', "HOST_CHAINS is not JSON: "),
        ("DATABASE_URL", "mysql://user:pa55word@db/relayer", "DATABASE_URL must be postgres://"),
    ],
)
def test_malformed_settings_are_named_in_one_line(tmp_path: Path, name: str, value: str, said: str) -> None:
    """A raw traceback of the JSON reader, and DATABASE_URL=foo that passed with a warning, told nobody what to mend."""
    found = check(tmp_path, **{name: value})
    assert found.returncode != 0
    assert said in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stderr.count("\n") == 1
    assert "pa55word" not in found.stderr, "no secret on the terminal"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GATEWAY_SIGNER_KEYS", "0x12", "a signer key is not 32 bytes"),
        ("GATEWAY_RPC_URLS", "ftp://user:pa55word@rpc.example.com", "not an http or https URL"),
        (
            "HOST_CHAINS",
            PRODUCTION["HOST_CHAINS"].replace("}]", ',"finality_depth":-5}]'),
            "a finality depth is a whole number",
        ),
        ("GATEWAY_FINALITY_DEPTH", "-1", "GATEWAY_FINALITY_DEPTH must be at least 0"),
    ],
)
def test_what_cannot_work_is_found_before_it_runs(tmp_path: Path, name: str, value: str, said: str) -> None:
    found = check(tmp_path, **{name: value})
    assert found.returncode != 0
    assert said in found.stderr
    assert "pa55word" not in found.stderr, "no secret on the terminal"
