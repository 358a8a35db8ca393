"""Rules people write themselves: thresholds and trends on any series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from monitor.api.auth import Reading
from monitor.api.deps import DatabasePart, WallClock
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS
from monitor.domain.rule import LONGEST_WINDOW, Rule, slug
from monitor.services import silencing

router = APIRouter(
    prefix="/api/v1/rules", tags=["rules"], dependencies=[Reading], responses=PROBLEMS
)

Words = Annotated[str, Field(max_length=512, pattern=r"^[^\x00-\x1f]*$")]
Seconds = Annotated[float, Field(ge=0, le=30 * 86400)]
Count = Annotated[int, Field(ge=1, le=1000)]


class RuleBody(BaseModel):
    """A rule. ``threshold``: the mean of the last ``window`` points against ``value``; ``trend``:
    their slope, per 1,000 steps. It clears at ``clear`` (null: at ``value``). It opens at ``k`` bad
    of the last ``m`` points, pending for ``for_s`` seconds besides, and closes after ``calm`` calm
    points in a row, calm for ``calm_s`` besides.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: Annotated[Words, Field(min_length=1)]
    series: Annotated[Words, Field(min_length=1, description="A series key; * stands for any.")]
    kind: Literal["threshold", "trend"] = "threshold"
    direction: Literal["above", "below"] = "above"
    value: float
    clear: float | None = None
    window: Annotated[int, Field(ge=1, le=LONGEST_WINDOW)] = 1
    k: Count = 1
    m: Count = 1
    calm: Count = 3
    for_s: Seconds = 0.0
    calm_s: Seconds = 0.0
    severity: Literal["info", "warning", "critical"] = "warning"
    run: Annotated[Words, Field(description="A run id, or a pattern with *; empty: all runs.")] = ""
    tag: Words = ""
    enabled: bool = True


class NewRule(RuleBody):
    """A rule with an id of your choice (small letters, digits, - and _); else made of its name."""

    id: Annotated[str, Field(max_length=63)] = ""


@dataclass(frozen=True, slots=True)
class RuleList:
    """All rules, by id."""

    rules: list[Rule]


@router.get("", response_model=RuleList)
def list_rules(database: DatabasePart) -> Plain:
    """All rules."""
    with database.read() as uow:
        return Plain(RuleList(uow.rules.all()))


@router.post("", status_code=201, response_model=Rule)
def add_rule(body: NewRule, database: DatabasePart, clock: WallClock) -> Plain:
    """Make a rule, or change the one of this id. Runs under way are judged by it from here on."""
    fields = body.model_dump(exclude={"id"})
    rule = Rule(id=body.id or slug(body.name), **fields)
    return Plain(silencing.save_rule(database, rule, at=clock()), status_code=201)


@router.put("/{rule}", response_model=Rule)
def put_rule(rule: str, body: RuleBody, database: DatabasePart, clock: WallClock) -> Plain:
    """The same, with the id in the address."""
    return Plain(silencing.save_rule(database, Rule(id=rule, **body.model_dump()), at=clock()))


@router.delete("/{rule}", status_code=204, responses=MISSING)
def remove_rule(rule: str, database: DatabasePart, clock: WallClock) -> Response:
    """Forget a rule; the alerts it opened in runs under way are closed."""
    silencing.remove_rule(database, rule, at=clock())
    return Response(status_code=204)
