"""Generated requests against every operation: never a 500, always as the API says of itself."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from monitor.app import create_app
from monitor.settings import Settings
from tests.api.conftest import Running, running
from tests.fixtures.batches import batch, opening


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    for server in running(Settings(port=0, data_dir=tmp_path_factory.mktemp("fuzz"))):
        server.send(batch("r", 0, [1, 2, 3], records=opening("r")))
        yield server


CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
described = create_app(Settings()).openapi()
schema = schemathesis.openapi.from_dict(described).exclude(path="/api/v1/stream")


@schema.parametrize()
@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_no_request_breaks_an_operation(case: schemathesis.Case, fuzzed: Running) -> None:
    case.call_and_validate(base_url=fuzzed.url, checks=CHECKS, timeout=20)
