"""Requests that end at the door: withdrawn by their client before anything was signed, or proven bad."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from requests_app.states import Kind
from tests.crash.ground import body_key
from tests.crash.scene import FORMS, Deeds, Scene
from workers.shift import ShiftContext, Turn


class Withdrawn(Scene):
    """The client cancels until it is told so."""

    aims: ClassVar[tuple[str, ...]] = ("cancel_commit",)

    def turns(self) -> list[Turn]:
        return [Deeds(self)]

    def act(self, context: ShiftContext) -> None:
        super().act(context)
        known = self.ground.accepted()
        if len(known) == self.count:
            for job_id in known.values():
                self.ground.client().post(f"/v1/requests/{job_id}/cancel")

    def check(self) -> None:
        assert self.ground.statuses() == {"failure": self.count}
        details = self.ground.rows(f"SELECT DISTINCT fail_detail FROM {self.kind.table}")
        assert details == [("canceled by client",)]
        assert self.ground.value("SELECT count(*) FROM req_transition WHERE verb = 'cancel'") == self.count


class Denied(Scene):
    """A bad signature is stored as a failure, in one statement; posting it again finds no live row and makes another failed one."""

    aims: ClassVar[tuple[str, ...]] = ("submit_denied_commit",)
    kinds = (Kind.USER_DECRYPT,)
    count = 1

    def prepare(self) -> None:
        (one,) = self.ground.submissions([FORMS[self.kind]])
        body = {**one.body, "signature": "11" * 64 + "1b"}
        self.submissions = [replace(one, body=body)]
        self.ground.made = list(self.submissions)

    def turns(self) -> list[Turn]:
        return [Deeds(self)]

    def over(self) -> bool:
        (one,) = self.submissions
        return body_key(one) in self.ground.accepted()

    def check(self) -> None:
        assert set(self.ground.statuses()) == {"failure"}
        assert self.ground.value("SELECT count(*) FROM queue_job") == 0
