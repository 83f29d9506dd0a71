"""System checks over the settings."""

from __future__ import annotations

import pytest
from django.core.checks import run_checks
from pytest_django.fixtures import Settings


def _ids(deploy: bool = False) -> set[str]:
    return {
        str(message.id) for message in run_checks(include_deployment_checks=deploy) if "relayer." in str(message.id)
    }


def test_defaults_hold() -> None:
    assert not {name for name in _ids() if name.startswith("relayer.E")}


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("SHIFT_SECONDS", 60.0, "relayer.E002"),
        ("LEASE_SECONDS", 4.0, "relayer.E003"),
        ("RPC_TIMEOUT_SECONDS", 15.0, "relayer.E004"),
        ("BEAT_STALE_SECONDS", 12.0, "relayer.E005"),
        ("QUEUE_CAPACITY", 1_000, "relayer.E006"),
        ("API_AUTH", "maybe", "relayer.E007"),
        ("QUEUED_DEADLINE_SECONDS", 0.0, "relayer.E008"),
        ("QUEUE_URL", "amqp://broker/settle", "relayer.E011"),
        ("WEBHOOK_TIMEOUT_SECONDS", 30.0, "relayer.E012"),
        ("DESK_LOGIN_FAILURES", 0, "relayer.E013"),
        ("TRUSTED_PROXIES", -1, "relayer.E013"),
        ("QUEUE_URL", "sqs://eu-west-1/settle", None),
        ("RELAYER_ROLE", "worker", None),
    ],
)
def test_each_disorder_is_named(settings: Settings, name: str, value: object, check: str | None) -> None:
    setattr(settings, name, value)
    assert (check in _ids()) is (check is not None)


def test_retry_after_timeout(settings: Settings) -> None:
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "retry": settings.Q_CLUSTER["timeout"]}
    assert "relayer.E001" in _ids()


def test_pool_outside_the_web_role(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"]["OPTIONS"], "pool", {})
    settings.RELAYER_ROLE = "worker"
    assert "relayer.E009" in _ids()
    settings.RELAYER_ROLE = "web"
    assert "relayer.E009" not in _ids()


def test_metrics_directory_must_be_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere/at/all")
    assert "relayer.E010" in _ids()


def test_production_hears_of_laptop_defaults(settings: Settings) -> None:
    settings.DATABASE_URL = ""
    settings.API_AUTH = "optional"
    assert {"relayer.W003", "relayer.W004"} <= _ids(deploy=True)
    settings.DATABASE_URL = "postgres://db.example.org/relayer"
    settings.API_AUTH = "required"
    assert not {"relayer.W003", "relayer.W004"} & _ids(deploy=True)
