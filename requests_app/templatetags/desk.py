"""What the desk's templates need beyond the theme's tags."""

from __future__ import annotations

from typing import Any

from django import template
from django.db.models import Model
from django.template.loader import render_to_string
from unfold.templatetags.unfold import header_title

register = template.Library()


@register.simple_tag(takes_context=True)
def place(context: Any) -> str:
    """Where the page is, in the sidebar's words: group, entry, and the row of a form. The theme's own where no entry leads."""
    groups = context.get("sidebar_navigation") or []
    entries = [(group.get("title"), one) for group in groups for one in group["items"] if one["active"]]
    if not entries:
        return str(header_title(context))
    group, entry = entries[-1]
    parts = [{"title": group}] if group and group != entry["title"] else []
    parts.append({"title": entry["title"], "link": entry["link"]})
    if isinstance(context.get("original"), Model):
        parts.append({"title": context["original"]})
    return render_to_string("unfold/helpers/header_title.html", {"parts": parts})
