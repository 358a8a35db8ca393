"""``watchkeeper alerts``: list, show, acknowledge, close and silence alerts of a running server."""

from __future__ import annotations

import argparse
import getpass
import json
import re
from datetime import datetime
from typing import Any

from monitor.cli._api import Api, add_server
from monitor.domain.silence import zone_of
from monitor.errors import NotFound, UnknownFilter

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
SHORT_ID = 12


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    found = verbs.add_parser("list", help="open alerts, or all")
    found.add_argument("--run", help="only of this run")
    found.add_argument("--all", action="store_true", help="those that are over, too")
    show = verbs.add_parser("show", help="one alert with its history")
    show.add_argument("alert", help="its id, or the beginning of it")
    for verb, words in (("ack", "somebody has seen it"), ("resolve", "close it by hand")):
        act = verbs.add_parser(verb, help=words)
        act.add_argument("alert", help="its id, or the beginning of it")
        act.add_argument("--note", default="", help="a word to the others")
        act.add_argument("--by", default=_me(), help="who (default: your user name)")
    act.add_argument("--fine", action="store_true", help="nothing was wrong")
    _silence_arguments(verbs.add_parser("silence", help="say nothing of some alerts for a while"))
    for sub in verbs.choices.values():
        sub.add_argument("--json", action="store_true", help="the server's answer as it is")
        add_server(sub)


def _silence_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", default="", help="only of this run")
    parser.add_argument("--detector", default="", help="only of this detector")
    parser.add_argument("--tag", default="", help="only of runs with this tag")
    parser.add_argument("--for", dest="span", help="from now on for so long, such as 90m, 8h or 2d")
    parser.add_argument("--from", dest="starts", help="from then, such as 2026-03-28T22:00")
    parser.add_argument("--to", dest="ends", help="until then")
    parser.add_argument("--daily", metavar="HH:MM-HH:MM", help="every day from, to (over midnight)")
    parser.add_argument("--days", default="", help="with --daily: only on mon,tue,...")
    parser.add_argument("--zone", default="UTC", help="time zone, such as Europe/Amsterdam")
    parser.add_argument("--comment", default="", help="why")
    parser.add_argument("--by", default=_me(), help="who (default: your user name)")
    parser.add_argument("--remove", metavar="ID", help="end a silence now")
    parser.add_argument("--list", action="store_true", help="show the silences there are")


def run(options: argparse.Namespace) -> int:
    """0 when the server did what was asked."""
    verbs = {"list": _list, "show": _show, "ack": _act, "resolve": _act, "silence": _silence}
    with Api(options.server) as api:
        said = verbs[options.verb](api, options)
    if options.json:
        print(json.dumps(said, ensure_ascii=False))
    return 0


def _list(api: Api, options: argparse.Namespace) -> Any:
    said = api("GET", "/alerts", run=options.run, open=str(not options.all).lower(), limit=1000)
    if not options.json:
        for alert in said["alerts"]:
            print(_line(alert))
        if not said["alerts"]:
            print("No open alerts." if not options.all else "No alerts.")
    return said


def _line(alert: dict[str, Any]) -> str:
    subject = f" {alert['subject']}" if alert["subject"] else ""
    return (
        f"{alert['id'][:SHORT_ID]}  {alert['severity']:8}  {alert['state']:12}  "
        f"{alert['run_name']}: {alert['title']}{subject} since step {alert['onset_step']:,}"
    )


def _show(api: Api, options: argparse.Namespace) -> Any:
    alert = api("GET", f"/alerts/{_find(api, options.alert)}")
    if options.json:
        return alert
    print(alert["text"])
    if len(alert["incident_alerts"]) > 1:
        print(f"\n{alert['incident_headline']}:")
        for one in alert["incident_alerts"]:
            print(f"  {one['id'][:SHORT_ID]}  {one['state']:12}  {one['title']}")
    print()
    for change in alert["changes"]:
        by = f" by {change['by']}" if change["by"] else ""
        print(f"{_when(change['at'])}  {change['old']} -> {change['new']}: {change['reason']}{by}")
    for message in alert["messages"]:
        held = f" ({message['held']})" if message["state"] == "held" else ""
        print(f"{message['moment']} to {message['channel']}: {message['state']}{held}")
    return alert


def _act(api: Api, options: argparse.Namespace) -> Any:
    body = {"by": options.by, "note": options.note}
    path = "acknowledge" if options.verb == "ack" else "resolve"
    if options.verb == "resolve":
        body |= {"was_fine": options.fine}
    found = _find(api, options.alert)
    said = api("POST", f"/alerts/{found}/{path}", body)
    if not options.json:
        print(f"{found}: {'acknowledged' if options.verb == 'ack' else 'closed'}")
    return said


def _find(api: Api, start: str) -> str:
    """The one alert whose id begins so."""
    if len(start) == 32:
        return start
    known = api("GET", "/alerts", limit=1000)["alerts"]
    fitting = [str(one["id"]) for one in known if one["id"].startswith(start)]
    if len(fitting) != 1:
        raise NotFound(f"{len(fitting)} alerts have an id that begins with {start!r}.")
    return fitting[0]


def _silence(api: Api, options: argparse.Namespace) -> Any:
    if options.remove:
        return api("DELETE", f"/silences/{options.remove}")
    if options.list:
        said = api("GET", "/silences")
        for one in [] if options.json else said["silences"]:
            print(_silence_line(one))
        return said
    body = {
        name: getattr(options, name) for name in ("run", "detector", "tag", "zone", "comment", "by")
    }
    made = api("POST", "/silences", body | _span(options))
    if not options.json:
        print(_silence_line(made))
    return made


def _span(options: argparse.Namespace) -> dict[str, Any]:
    """The silence's times, from --for, --from and --to, or --daily."""
    if options.daily:
        begin, _, end = options.daily.partition("-")
        names = [name for name in options.days.lower().split(",") if name]
        if any(name not in DAYS for name in names):
            raise UnknownFilter(f"Days are {', '.join(DAYS)}.")
        return {"begin": begin, "end": end, "days": [DAYS.index(name) for name in names]}
    if options.span:
        now = datetime.now(zone_of(options.zone)).timestamp()
        ends = datetime.fromtimestamp(now + _seconds(options.span), zone_of(options.zone))
        starts = datetime.fromtimestamp(now, zone_of(options.zone))
        return {"from": starts.isoformat(), "to": ends.isoformat()}
    if not (options.starts and options.ends):
        raise UnknownFilter("Say when: --for 8h, --from and --to, or --daily 22:00-07:00.")
    return {"from": options.starts, "to": options.ends}


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None:
        raise UnknownFilter(f"{text!r} is no length of time.", hint="Such as 90m, 8h or 2d.")
    return float(found[1]) * UNITS[found[2]]


def _silence_line(one: dict[str, Any]) -> str:
    what = " ".join(f"{name}={one[name]}" for name in ("run", "detector", "tag") if one[name])
    if one["begin"]:
        days = ",".join(DAYS[day] for day in one["days"]) or "every day"
        when = f"{one['begin']}-{one['end']} {one['zone']}, {days}"
    else:
        when = f"{_when(one['starts_at'], one['zone'])} to {_when(one['ends_at'], one['zone'])}"
    now = "" if one["until"] is None else f"; holds now, until {_when(one['until'], one['zone'])}"
    return f"{one['id']}  {what or 'everything'}: {when}{now}"


def _when(at: float, zone: str = "UTC") -> str:
    return f"{datetime.fromtimestamp(at, zone_of(zone)):%Y-%m-%d %H:%M %Z}"


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
