"""The person on call: `python -m tests.chaos.operator`, in the stack's surroundings. Resumes signers that were blocked for foreign use.

A process of its own, with the product's own way of telling a signer something; it says a line for each command.
"""

from __future__ import annotations

import os
import time
from uuid import uuid4

LOOK_SECONDS = 1.0


def main() -> None:
    """Look until killed."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relayer_site.settings")
    import django

    django.setup()
    import psycopg

    from requests_app.errors import RelayerError
    from requests_app.signer_control import SignerDeed, tell_signer
    from requests_app.store.session import connect

    while True:
        try:
            with connect("worker", name="chaos-operator") as conn:
                while True:
                    person = conn.execute("SELECT id FROM auth_user WHERE is_active ORDER BY id LIMIT 1").fetchone()
                    blocked = conn.execute(
                        "SELECT id, status_reason FROM signer WHERE status = 'blocked' ORDER BY id"
                    ).fetchall()
                    for signer_id, reason in blocked if person else ():
                        told = tell_signer(
                            conn,
                            signer_id=signer_id,
                            deed=SignerDeed.RESUME,
                            token=uuid4(),
                            reason="looked at: the key was used by the test",
                            reviewer_id=person[0],
                        )
                        print(f"operator: signer {signer_id} blocked for {reason}: resume {told.value}", flush=True)
                    time.sleep(LOOK_SECONDS * (3 if blocked else 1))
        except (psycopg.Error, RelayerError, RuntimeError) as error:
            print(f"operator: {type(error).__name__}", flush=True)
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
