"""`manage.py relayer_bill`: usage that nobody has paid for becomes payments, which the clients authorize."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from requests_app import authorizations, billing
from requests_app.billing import Billed, Biller
from requests_app.errors import ConfigurationError
from requests_app.services_payments import transfer_of, valid_before
from requests_app.store import bills
from requests_app.store.accounts import account_by_name
from requests_app.store.session import connect

EXIT_NOT_BILLED: Final = 2


class Command(BaseCommand):
    """One payment a client, each in its own transaction; run it as often as you like: no usage is billed twice.

    Exit code 2 when somebody owes and could not be billed (with --dry-run: could not be), after everybody else was.
    """

    help = (
        "Make payments for usage that no bill has claimed; the client finds, signs and authorizes its own over the API."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Whom, from how much on, which form."""
        parser.add_argument("--account", help="only this client, by name")
        parser.add_argument("--payer", help="the address that is to sign (with --account; default: BILLING_PAYERS)")
        parser.add_argument("--least", type=int, default=1, help="bill from so many picodollars on (default: 1)")
        parser.add_argument("--open", action="store_true", help="list the bills that are not paid yet instead")
        parser.add_argument("--dry-run", action="store_true", help="say what would be billed")
        parser.add_argument("--json", action="store_true", help="print JSON, with the document that the payer signs")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find, make, print."""
        name, payer = options["account"], options["payer"]
        if payer and not name:
            raise CommandError("--payer belongs to one account: --account")
        with connect("worker", name="bill") as conn:
            if options["open"]:
                self._say_open(bills.open_bills(conn), as_json=options["json"])
                return
            try:
                by = billing.biller()
                found = billing.due(conn, by, options["least"], payers={name: payer} if payer else None)
            except ConfigurationError as error:
                raise CommandError(str(error)) from None
            if name and account_by_name(conn, name) is None:
                raise CommandError(f"there is no account {name!r}")
            wanted = [one for one in found if name in (None, one.name)]
            hidden = options["json"] or not sys.stderr.isatty()
            shown = tqdm(wanted, unit=" clients", disable=hidden)
            if options["dry_run"]:
                results = [Billed(one, None, one.obstacle) for one in wanted]
            else:
                results = billing.make_bills(conn, by, shown)
        self._say(by, results, options)
        if any(one.obstacle for one in results):
            sys.exit(EXIT_NOT_BILLED)

    def _say(self, by: Biller, results: list[Billed], options: dict[str, Any]) -> None:
        if options["json"]:
            refused = [{"account": one.due.name, "why": one.obstacle} for one in results if one.obstacle]
            bills_of = [_document(by, one) for one in results]
            self.stdout.write(json.dumps({"dry_run": options["dry_run"], "bills": bills_of, "not_billed": refused}))
            return
        for one in results:
            amount = one.bill.intent.amount if one.bill else one.due.amount
            price = f"{amount / 10**by.token.decimals:,.6f} {by.token.symbol}"
            told = one.bill.intent.public_id if one.bill else one.obstacle
            told = told or ("would be billed" if options["dry_run"] else "billed meanwhile by another run")
            self.stdout.write(f"{one.due.name:<32} {price:>24}  {one.due.usage.messages:>10,} envelopes  {told}")
        made = sum(one.bill is not None for one in results)
        self.stdout.write(f"{made} of {len(results)} billed")

    def _say_open(self, rows: list[bills.OpenBill], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps([row._asdict() for row in rows]))
            return
        for row in rows:
            self.stdout.write(
                f"account {row.payer}  {row.reference}  {row.state:<12} {row.spend:>20,} picodollars  {row.rows} rows"
            )
        self.stdout.write(f"{len(rows)} open bills")


def _document(by: Biller, one: Billed) -> dict[str, Any]:
    due, bill = one.due, one.bill
    document: dict[str, Any] = {
        "account": due.name,
        "picodollars": bill.covers.spend if bill else due.usage.spend,
        "envelopes": bill.covers.messages if bill else due.usage.messages,
        "amount": str(bill.intent.amount if bill else due.amount),
        "token": by.token_text,
        "payer": due.payer,
        "merchant": by.merchant,
        "obstacle": one.obstacle,
        "payment": None,
    }
    if bill is not None:
        transfer = transfer_of(bill.intent)
        document["payment"] = bill.intent.public_id
        document["ref"] = f"0x{bill.intent.ref.hex()}"
        if transfer is not None:
            document["sign"] = authorizations.typed_data(transfer, valid_before(bill.intent))
    return document
