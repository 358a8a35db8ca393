"""``watchkeeper rules``: thresholds and trends of your own on any series."""

from __future__ import annotations

import argparse
import json
from typing import Any

from monitor.cli._api import Api, add_server

FIELDS = (
    "id", "series", "kind", "direction", "value", "clear", "window", "k", "m", "calm", "for_s",
    "calm_s", "severity", "run", "tag",
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("list", help="the rules there are")
    _add_arguments(verbs.add_parser("add", help="make a rule, or change the one of this id"))
    remove = verbs.add_parser("remove", help="forget a rule")
    remove.add_argument("rule", help="its id")
    for sub in verbs.choices.values():
        sub.add_argument("--json", action="store_true", help="the server's answer as it is")
        add_server(sub)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="what its alerts are called")
    parser.add_argument("series", help="a series key, such as loss/train; * stands for any")
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--above", type=float, metavar="VALUE", help="bad above this")
    limit.add_argument("--below", type=float, metavar="VALUE", help="bad below this")
    parser.add_argument("--trend", action="store_true", help="the slope per 1,000 steps instead")
    parser.add_argument("--clear", type=float, help="calm again beyond this (default: the value)")
    parser.add_argument("--window", type=int, help="mean of so many points (default: 1; trend: 50)")
    parser.add_argument("--k", type=int, default=1, help="opens at k bad ...")
    parser.add_argument("--m", type=int, help="... of the last m points (default: k)")
    parser.add_argument("--for-s", type=float, default=0.0, help="pending for so many seconds")
    parser.add_argument("--calm", type=int, default=3, help="closes after so many calm points")
    parser.add_argument(
        "--calm-s", type=float, default=0.0, help="calm for so many seconds besides"
    )
    parser.add_argument("--severity", choices=["info", "warning", "critical"], default="warning")
    parser.add_argument("--run", default="", help="only runs of this id, or pattern with *")
    parser.add_argument("--tag", default="", help="only runs with this tag")
    parser.add_argument("--id", default="", help="its id (default: made of the name)")


def run(options: argparse.Namespace) -> int:
    """0 when the server did what was asked."""
    with Api(options.server) as api:
        said = {"list": _list, "add": _add, "remove": _remove}[options.verb](api, options)
    if options.json:
        print(json.dumps(said, ensure_ascii=False))
    return 0


def _list(api: Api, options: argparse.Namespace) -> Any:
    said = api("GET", "/rules")
    if not options.json:
        for rule in said["rules"]:
            print(_line(rule))
        if not said["rules"]:
            print("There are no rules.")
    return said


def _add(api: Api, options: argparse.Namespace) -> Any:
    above = options.above is not None
    given = vars(options) | {
        "kind": "trend" if options.trend else "threshold",
        "direction": "above" if above else "below",
        "value": options.above if above else options.below,
        "window": options.window or (50 if options.trend else 1),
        "m": options.m or options.k,
    }
    made = api("POST", "/rules", {"name": options.name, **{name: given[name] for name in FIELDS}})
    if not options.json:
        print(_line(made))
    return made


def _remove(api: Api, options: argparse.Namespace) -> Any:
    return api("DELETE", f"/rules/{options.rule}")


def _line(rule: dict[str, Any]) -> str:
    what = "slope of " if rule["kind"] == "trend" else ""
    off = "" if rule["enabled"] else " (switched off)"
    return (
        f"{rule['id']}  {rule['severity']:8}  {rule['name']}: {what}{rule['series']} "
        f"{rule['direction']} {rule['value']:g}{off}"
    )
