"""Every page of the desk over a full database: it opens, shows no raw input, offers no change, asks little."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from requests_app import models, overview
from requests_app.admin.base import RecordAdmin
from requests_app.admin.cells import as_hex
from requests_app.admin.explain import EVENTS
from requests_app.admin.subject import MODELS
from requests_app.models.reviews import ReasonCode
from requests_app.states import REQUEST_KINDS, Kind, Status
from requests_app.webhook_messages import message_id
from tests.desk.scene import HOSTILE, Scene

RECORDS = sorted(
    (model for model, page in admin.site._registry.items() if isinstance(page, RecordAdmin)),
    key=lambda model: model._meta.label,
)


@pytest.fixture
def scene(db: None) -> Scene:
    return Scene().build(each=1)


def change_url(model: type, key: object) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=(key,))


def list_url(model: type) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def test_every_list_and_page_opens_for_a_viewer(scene: Scene, as_role: Callable[[str], Client]) -> None:
    client = as_role("viewer")
    for model in RECORDS:
        assert client.get(list_url(model)).status_code == 200, model
        row = model._default_manager.first()
        if row is not None:
            answer = client.get(change_url(model, row.pk))
            assert answer.status_code == 200, model
            assert b'name="_save"' not in answer.content
    for name, args in (
        ("requests_app_signer_slots", (scene.signers[0].pk,)),
        ("requests_app_envelopes", (1,)),
        ("requests_app_dead", (1,)),
    ):
        assert client.get(reverse(f"admin:{name}", args=args)).status_code == 200, name


def words(html: str, start: str, end: str) -> str:
    """The text between two marks of a page."""
    found = re.search(f"{start}(.*?){end}", html, re.DOTALL)
    assert found is not None, start
    return " ".join(re.sub("<[^>]+>", " ", found[1]).split())


def test_head_and_sidebar_name_a_page_alike(scene: Scene, admin_client: Client) -> None:
    """The head said "Payment intents" and "Successful tasks" where the sidebar had led to "Payments" and "Finished shifts"."""
    for model in admin.site._registry:
        html = admin_client.get(list_url(model)).content.decode()
        entry = words(html, r'<a [^>]*[ ]active">.*?</span>\s*<span>', "</span>")
        head = words(html, '<h1 class="overflow', "</h1>")
        assert head.endswith(entry), (head, entry)
        row = model._default_manager.first()
        if row is not None and model in RECORDS:
            html = admin_client.get(change_url(model, row.pk)).content.decode()
            assert words(html, '<h1 class="overflow', "</h1>") == head
            title = words(html, "<title>", "</title>")
            assert " object (" not in title, title
            assert "None" not in title, title


def test_scene_reaches_most_tables(scene: Scene) -> None:
    """The test above would pass over an empty database."""
    empty = {m.__name__ for m in RECORDS if m._meta.app_label == "requests_app" and not m._default_manager.exists()}
    assert empty == {"EnvelopeConflict", "RuntimeSetting"}


@pytest.mark.parametrize("verb", ["add", "change", "delete"])
def test_nobody_edits_history(verb: str, scene: Scene, admin_client: Client) -> None:
    """Not even a superuser: the pages for it refuse, and a POST to the record changes nothing."""
    for model in RECORDS:
        row = model._default_manager.first()
        if row is None:
            continue
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{verb}"
        url = reverse(name, args=() if verb == "add" else (row.pk,))
        answer = admin_client.post(url, {"status": "completed", "post": "yes"})
        assert answer.status_code == 403 or verb == "change", (model, verb)
        again = model._default_manager.get(pk=row.pk)
        assert [getattr(again, f.attname) for f in model._meta.concrete_fields] == [
            getattr(row, f.attname) for f in model._meta.concrete_fields
        ]


def test_without_a_role_nothing_is_shown(scene: Scene, as_role: Callable[[str], Client]) -> None:
    client = as_role("")
    for model in RECORDS:
        assert client.get(list_url(model)).status_code == 403
    row = models.ReviewCase.objects.get(pk=scene.cases[0].pk)
    assert client.get(change_url(models.ReviewCase, row.pk)).status_code == 403
    assert client.get(reverse("admin:requests_app_signer_slots", args=(scene.signers[0].pk,))).status_code == 403


def test_a_stranger_is_sent_to_the_login(scene: Scene, client: Client) -> None:
    for url in ("/admin/", list_url(models.ReviewCase), reverse("admin:relayer_overview")):
        answer = client.get(url)
        assert answer.status_code == 302
        assert "/admin/login/" in answer.headers["Location"]


def test_input_is_escaped_everywhere(scene: Scene, admin_client: Client) -> None:
    """Markup in every field that a client, a node or a contract can fill."""
    body = {"handles": [HOSTILE], "extra_data": HOSTILE, HOSTILE: HOSTILE, "nested": [{HOSTILE: HOSTILE}]}
    row = scene.request(Kind.PUBLIC_DECRYPT, Status.FAILURE, 1, body)
    parked = scene.request(Kind.INPUT_PROOF, Status.NEEDS_REVIEW, 2, body)
    case = models.ReviewCase.objects.get(kind=Kind.INPUT_PROOF, subject_id=parked.pk)
    models.TxAttempt.objects.update(error_text=HOSTILE, error_class=HOSTILE)
    models.Account.objects.filter(pk=scene.client.pk).update(name=HOSTILE)
    models.EnvelopeSource.objects.update(name=HOSTILE, halted=HOSTILE)
    models.Webhook.objects.update(url=HOSTILE, description=HOSTILE)
    models.WebhookDelivery.objects.update(last_error=HOSTILE)
    delivery = models.WebhookDelivery.objects.latest("pk")
    for url in (
        change_url(models.PublicDecryptRequest, row.pk),
        change_url(models.ReviewCase, case.pk),
        change_url(models.Command, "cancel:1:77"),
        change_url(models.Account, scene.client.pk),
        change_url(models.EnvelopeSource, 1),
        list_url(models.TxAttempt),
        list_url(models.Account),
        change_url(models.Webhook, scene.webhook.pk),
        change_url(models.WebhookDelivery, delivery.pk),
        list_url(models.Webhook),
        list_url(models.WebhookDelivery),
        reverse("admin:requests_app_dead", args=(1,)),
        "/admin/",
    ):
        text = admin_client.get(url).content.decode()
        assert "<script>alert" not in text, url
        assert "<img src=x" not in text, url
        assert "&lt;script&gt;" in text, url


def test_events_are_shown_by_name(scene: Scene, admin_client: Client) -> None:
    text = admin_client.get(reverse("admin:requests_app_envelopes", args=(1,))).content.decode()
    for name in EVENTS.values():
        assert f">{name}<" in text
    row = scene.rows[Kind.USER_DECRYPT, Status.COMPLETED][0]
    text = admin_client.get(change_url(models.UserDecryptRequest, row.pk)).content.decode()
    assert "user share responded" in text
    assert "proof verified" not in text


def test_the_chip_shows_only_when_somebody_is_needed(scene: Scene, admin_client: Client) -> None:
    assert 'class="rl-chip">4<' in admin_client.get("/admin/").content.decode()
    models.ReviewCase.objects.update(status="closed")
    overview.forget()
    assert "rl-chip" not in admin_client.get("/admin/").content.decode()


def test_no_digest_and_no_raw_transaction_on_any_page(scene: Scene, admin_client: Client) -> None:
    key = models.ApiKey.objects.first()
    attempt = models.TxAttempt.objects.first()
    assert key is not None
    assert attempt is not None
    for url, secret in (
        (change_url(models.ApiKey, key.pk), bytes(key.digest).hex()),
        (change_url(models.Webhook, scene.webhook.pk), bytes(scene.webhook.secret).hex()),
        (list_url(models.Webhook), bytes(scene.webhook.secret).hex()),
        (list_url(models.ApiKey), bytes(key.digest).hex()),
        (change_url(models.TxAttempt, attempt.pk), bytes(attempt.raw_tx).hex()[:64]),
    ):
        assert secret not in admin_client.get(url).content.decode()


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_search_finds_by_any_id_and_only_that_row(kind: Kind, scene: Scene, admin_client: Client) -> None:
    row = scene.rows[kind, Status.COMPLETED][0]
    reference = int.from_bytes(bytes(row.gw_reference_id), "big")
    other_view = uuid.uuid4()
    models.RequestClient.objects.create(client_id=scene.other.pk, kind=kind, request_id=row.pk, ext_job_id=other_view)
    url = list_url(MODELS[kind])
    for term in (
        str(row.ext_job_id),
        str(other_view),
        as_hex(row.gw_req_tx_hash),
        as_hex(row.gw_reference_id),
        str(reference),
        f"  {as_hex(row.gw_req_tx_hash)}  ".upper().replace("0X", "0x"),
    ):
        found = admin_client.get(url, {"q": term}).context["cl"].result_list
        assert [item.pk for item in found] == [row.pk], term
    for term in ("nonsense", "0x12", "9" * 90, "' OR 1=1 --", HOSTILE):
        answer = admin_client.get(url, {"q": term})
        assert answer.status_code == 200, term
        assert list(answer.context["cl"].result_list) == []
    assert admin_client.get(url, {"q": "\x00"}).status_code == 200  # refused by the form, with a message


def test_cases_are_found_by_the_ids_of_their_request(scene: Scene, admin_client: Client) -> None:
    case = scene.cases[0]
    row = MODELS[Kind(case.kind)]._default_manager.get(pk=case.subject_id)
    found = admin_client.get(list_url(models.ReviewCase), {"q": str(row.ext_job_id)}).context["cl"].result_list
    assert [item.pk for item in found] == [case.pk]


def test_the_queue_shows_open_cases_unless_asked(scene: Scene, admin_client: Client) -> None:
    models.ReviewCase.objects.filter(pk=scene.cases[0].pk).update(status="closed")
    url = list_url(models.ReviewCase)

    def shown(query: str) -> set[int]:
        return {case.pk for case in admin_client.get(url + query).context["cl"].result_list}

    everything = set(models.ReviewCase.objects.values_list("pk", flat=True))
    assert everything > {case.pk for case in scene.cases}
    assert shown("") == everything - {scene.cases[0].pk}
    assert shown("?case=closed") == {scene.cases[0].pk}
    assert shown("?case=all") == everything


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_has_words_on_its_page(code: ReasonCode, scene: Scene, admin_client: Client) -> None:
    case = scene.cases[0]
    models.ReviewCase.objects.filter(pk=case.pk).update(reason_code=code.value)
    text = admin_client.get(change_url(models.ReviewCase, case.pk)).content.decode()
    assert "This version has no words" not in text
    assert "What usually follows" in text
    for part in ("What was asked", "Attempts", "Timeline", "Evidence when it stopped"):
        assert part in text


def test_lists_never_count_and_ask_few_questions(
    scene: Scene, admin_client: Client, django_assert_max_num_queries: Callable[..., object]
) -> None:
    """Two for session and user, two for the sidebar's badge at most when cached, one for the rows and few for links."""
    admin_client.get("/admin/")
    for model in RECORDS:
        with django_assert_max_num_queries(8) as captured:  # type: ignore[attr-defined]
            admin_client.get(list_url(model))
        counting = [
            q["sql"] for q in captured.captured_queries if re.search(r"select count\(", q["sql"], re.IGNORECASE)
        ]
        assert counting == [], model


def test_an_unknown_row_leads_back_to_the_list(scene: Scene, admin_client: Client) -> None:
    answer = admin_client.get(change_url(models.ReviewCase, 99_999_999))
    assert answer.status_code == 302
    assert answer.headers["Location"] == list_url(models.ReviewCase)


def test_slots_page_by_keyset(scene: Scene, admin_client: Client) -> None:
    """Every nonce once, newest first, whatever the page boundaries."""
    signer = scene.signers[1].pk
    models.NonceSlot.objects.bulk_create(
        models.NonceSlot(signer_id=signer, nonce=n, kind=1, subject_id=10_000 + n, state="dead", opened_epoch=1)
        for n in range(120)
    )
    url, seen = reverse("admin:requests_app_signer_slots", args=(signer,)), []
    query = ""
    for _ in range(5):
        answer = admin_client.get(url + query)
        seen += [int(row[0]) for row in answer.context["sections"][0].rows]
        query = answer.context["older_url"]
        if not query:
            break
    assert seen == list(reversed(range(120)))
    for hostile in ("?before=abc", "?before=-1", "?before=" + "9" * 40, "?before=²"):
        assert admin_client.get(url + hostile).status_code == 200


def test_a_list_says_what_it_knows_of_its_length(scene: Scene, admin_client: Client) -> None:
    """It never counts: the frame must not call a page the results, nor an empty table one in which nothing matches."""
    shown = admin_client.get(list_url(models.TxAttempt)).content.decode()
    assert " results" not in shown
    assert "Show all" not in shown
    models.WebhookDelivery.objects.all().delete()
    empty = admin_client.get(list_url(models.WebhookDelivery)).content.decode()
    assert "Nothing here." in empty
    assert "Show everything" not in empty
    narrowed = admin_client.get(list_url(models.WebhookDelivery), {"state__exact": "failed"}).content.decode()
    assert "Nothing matches." in narrowed
    assert "Show everything" in narrowed


def test_what_the_theme_leaves_without_a_name_or_a_focus_has_one(scene: Scene, admin_client: Client) -> None:
    """The search field by its placeholder only, the filters' link without an address, the menu's icons as spans."""
    page = admin_client.get(list_url(models.TxAttempt)).content.decode()
    assert re.search(r'<input[^>]*id="searchbar"[^>]*aria-label="Transaction hash \(exact\)"', page)
    assert re.search(r'<button type="button"[^>]*x-on:click="filterOpen = true"', page)
    assert page.count('aria-label="Toggle sidebar"') == 2


def test_each_cell_of_a_page_repeats_its_heading_for_a_phone(scene: Scene, admin_client: Client) -> None:
    row = scene.rows[Kind.USER_DECRYPT, Status.COMPLETED][0]
    for url in ("/admin/", change_url(models.UserDecryptRequest, row.pk), reverse("admin:relayer_balances")):
        page = admin_client.get(url).content.decode()
        tables = re.findall(r'<table class="rl-table">.*?</table>', page, re.S)
        assert tables, url
        for table in tables:
            headings = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table)
            labels = re.findall(r'<td data-label="(.*?)"', table)
            assert labels == headings * (len(labels) // len(headings)), url
            assert len(labels) == table.count("<td"), url


def test_pages_of_a_row_name_what_they_are_about(scene: Scene, admin_client: Client) -> None:
    """Numbers of rows and columns of tables say nothing to a reader."""
    signer, attempt = scene.signers[0], models.TxAttempt.objects.latest("pk")
    letter, delivery = models.DeadLetter.objects.latest("pk"), models.WebhookDelivery.objects.latest("pk")
    source = models.EnvelopeSource.objects.get(pk=1)
    for url, title in (
        (reverse("admin:requests_app_signer_slots", args=(signer.pk,)), f"Nonces of signer {str(signer)[:10]}…"),
        (reverse("admin:requests_app_envelopes", args=(1,)), f"Envelopes of {source.name}"),
        (reverse("admin:requests_app_dead", args=(1,)), f"Dead letters of {source.name}"),
        (change_url(models.TxAttempt, attempt.pk), f"Attempt {str(attempt)[:10]}…"),
        (change_url(models.DeadLetter, letter.pk), f"Dead letter of payment #{letter.subject_id}"),
        (change_url(models.WebhookDelivery, delivery.pk), f"Webhook delivery {message_id(delivery.public_id)}"),
    ):
        assert f'<h1 class="rl-heading">{title}' in admin_client.get(url).content.decode(), url
    for model in (models.Command, models.ExecLease, models.QueueJob):
        page = admin_client.get(change_url(model, model._default_manager.latest("pk").pk)).content.decode()
        assert ">Record<" not in page, model
    for name in ("requests_app_signer_slots", "requests_app_envelopes", "requests_app_dead"):
        assert admin_client.get(reverse(f"admin:{name}", args=(32_000,))).status_code == 404, name
