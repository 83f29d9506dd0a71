"""`manage.py relayer_demo`: one request of each form and one payment against the running stack, checked on the chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers.devnet.demo import Api, ApiUnreachable, print_table, run
from workers.devnet.demo_payment import all_reports, pay, print_payment
from workers.devnet.deployment import wait_for_deployment
from workers.devnet.traffic import FORMS


class Command(BaseCommand):
    """Exit code 0 only when all completed, each has one request event (a payment one transfer), every signature is of a registered key."""

    help = "Submits one request of each form and one payment over HTTP, polls to the end, re-checks results, prints a table."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", required=True, help="base address of the API, such as http://127.0.0.1:3000")
        parser.add_argument("--api-key", default="", help="key of the client account")
        parser.add_argument("--wait", type=float, default=60.0, help="seconds to wait for the API (default 60)")
        parser.add_argument("--timeout", type=float, default=90.0, help="seconds until all must be final (default 90)")
        parser.add_argument("--rounds", type=int, default=1, help="how many of each form (default 1)")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            deployment = wait_for_deployment(Path(settings.RELAYER_DEPLOYMENT), options["wait"])
            api = Api(options["url"], options["api_key"])
            api.wait_ready(options["wait"])
            outcomes = run(api, deployment, FORMS * options["rounds"], options["timeout"])
            payments = [pay(api, deployment, options["timeout"]) for _ in range(options["rounds"])]
        except (ApiUnreachable, TimeoutError, OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(all_reports(outcomes, payments), indent=1))
        else:
            print_table(outcomes, self.stdout.write)
            for paid in payments:
                print_payment(paid, self.stdout.write)
        bad = sum(1 for one in outcomes if one.problem) + sum(1 for one in payments if one.problem)
        if bad:
            raise CommandError(f"{bad} of {len(outcomes) + len(payments)} did not end as they must")
