"""How a rendered message looks: one file per format and this table.

A name in the table is what a channel's ``format`` says. A class declares the fields its settings
form has; the page that edits channels knows nothing else of it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.formats.base import Format

FORMATS: dict[str, str] = {
    "generic": "monitor.formats.generic:Generic",
    "slack": "monitor.formats.slack:Slack",
    "discord": "monitor.formats.discord:Discord",
    "teams": "monitor.formats.teams:Teams",
    "ntfy": "monitor.formats.ntfy:Ntfy",
    "pagerduty": "monitor.formats.pagerduty:PagerDuty",
    "email": "monitor.formats.email:Email",
    "alertmanager": "monitor.formats.alertmanager:Alertmanager",
    "alertmanager_push": "monitor.formats.alertmanager_push:AlertmanagerPush",
    "apprise": "monitor.formats.apprise:AppriseFormat",
}

ENTRY_POINT_GROUP = "watchkeeper.formats"


def format_names() -> list[str]:
    """All names a channel's ``format`` may have, those of third parties last."""
    return [*FORMATS, *sorted(_foreign().keys() - FORMATS.keys())]


def load_format(name: str) -> Format:
    """The format behind a name, built-in or third-party.

    Raises:
        KeyError: no format has this name.
    """
    module, _, attribute = (_foreign() | FORMATS)[name].partition(":")
    made: Format = getattr(import_module(module), attribute)()
    return made


@cache
def _foreign() -> dict[str, str]:
    """Those of third parties. Looked up once: it means reading every installed distribution."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
