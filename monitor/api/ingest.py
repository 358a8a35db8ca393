"""Batches come in here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.requests import ClientDisconnect

from monitor.api.auth import Ingesting
from monitor.api.deps import IngestPart
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS
from monitor.errors import MalformedBody
from trainer_hooks.wire import Receipt

router = APIRouter(tags=["ingest"], dependencies=[Ingesting])


async def raw_body(request: Request) -> bytes:
    """The body as it came, compressed or not; no longer than the door lets through.

    Raises:
        MalformedBody: the connection broke before its end.
    """
    try:
        return await request.body()
    except ClientDisconnect:
        raise MalformedBody("The connection ended before the body did.") from None


@router.post(
    "/api/v1/batches",
    response_model=Receipt,
    responses=PROBLEMS | {410: MISSING[410]},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
def post_batch(
    request: Request, body: Annotated[bytes, Depends(raw_body)], ingest: IngestPart
) -> Plain:
    """Take one batch in, once. A repeat is answered alike and changes nothing."""
    return Plain(ingest.accept(body, request.headers.get("content-encoding", "")))
