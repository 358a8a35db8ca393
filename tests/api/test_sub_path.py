"""Behind a proxy that puts the dashboard under a path, stripped or passed on; with a login."""

from __future__ import annotations

import re
from collections.abc import Generator
from urllib.parse import urljoin

import httpx
import pytest
from pydantic import SecretStr

from monitor.settings import Settings
from tests.api.conftest import Running, running

TOKEN = "read-token-1"


@pytest.fixture(scope="module")
def under(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    settings = Settings(
        port=0,
        data_dir=tmp_path_factory.mktemp("sub"),
        base_url="https://watch.example.org/monitor/",
        read_token=SecretStr(TOKEN),
    )
    yield from running(settings)


@pytest.mark.parametrize("prefix", ["", "/monitor"])
def test_a_browser_is_led_to_the_login_and_back_by_relative_addresses(
    under: Running, prefix: str
) -> None:
    for path in ("/", "/runs/a", "/runs/a/answers", "/alerts"):
        answer = under.client.get(prefix + path)
        assert answer.status_code == 303
        where = answer.headers["location"]
        assert not where.startswith(("/", "http")), where
        there = urljoin(under.url + prefix + path, where)
        assert there.startswith(f"{under.url}{prefix}/login?next=")
        assert under.client.get(there).status_code == 200


@pytest.mark.parametrize("prefix", ["", "/monitor"])
def test_pages_and_what_they_name_work_under_the_path(under: Running, prefix: str) -> None:
    with httpx.Client(base_url=under.url, trust_env=False) as client:
        answer = client.post(f"{prefix}/login", json={"token": TOKEN})
        assert answer.status_code == 204
        for path in ("/", "/runs/a", "/runs/a/answers", "/alerts"):
            page = client.get(prefix + path)
            assert page.status_code == 200
            for address in re.findall(r'(?:href|src)="([^"#]+)"', page.text):
                there = urljoin(under.url + prefix + path, address)
                assert there.startswith(f"{under.url}{prefix}/")
                assert client.get(there).status_code == 200, there
        assert client.get(f"{prefix}/api/v1/runs").status_code == 200


def test_the_api_says_no_in_json_and_the_address_is_a_known_host(under: Running) -> None:
    answer = under.client.get("/api/v1/runs", headers={"host": "watch.example.org"})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert under.client.get("/metrics").status_code == 401
    assert under.client.get("/health/ready").status_code == 200
