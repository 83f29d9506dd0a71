"""Readiness: one request that the ACL allows and one that it denies."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import DECRYPTS, FORMS, Scene


class Ready(Scene):
    """The first is admitted and answered, the second ends before anything is signed."""

    aims: ClassVar[tuple[str, ...]] = (
        "lease_readiness_commit",
        "host_acl_rpc",
        "readiness_*",
        "admit_commit",
        "end_unsent_commit",
    )
    kinds = DECRYPTS
    constants: ClassVar = {"workers.host_acl.SECOND_LOOK_SECONDS": 0.1}

    def prepare(self) -> None:
        form = FORMS[self.kind]
        self.submissions = self.ground.submissions([form]) + self.ground.submissions([form], set_up=False)

    def check(self) -> None:
        assert self.ground.statuses() == {"completed": 1, "failure": 1}
        labels = self.ground.rows(f"SELECT fail_label FROM {self.kind.table} WHERE status = 'failure'")
        assert labels == [("not_allowed_on_host_acl",)]
