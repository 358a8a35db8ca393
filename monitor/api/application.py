"""The application class: FastAPI that describes its errors as what they are."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from monitor.api.schemas import Problem


class Application(FastAPI):
    """Adds the one shape of all errors to the API's description."""

    def openapi(self) -> dict[str, Any]:
        schema = super().openapi()
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("Problem", Problem.model_json_schema())
        return schema
