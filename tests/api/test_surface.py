"""What surrounds the API: metrics, pages, static files, health, problem documents."""

from __future__ import annotations

import gzip
import re
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.api.conftest import Running
from tests.fixtures.batches import batch, opening
from trainer_hooks.wire import RunEnd


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "text/plain"),
        ("*/*", "text/plain"),
        ("text/html", "text/plain"),
        ("text/plain;version=0.0.4", "text/plain"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics"),
        ("nonsense", "text/plain"),
    ],
)
def test_metrics_are_read_by_a_real_parser(site: Running, accept: str | None, kind: str) -> None:
    name = 'a "b" \\ c\nd 合計'
    columns = {"loss/train": [1.0, "nan"], "x{y}": [2.0, 3.0]}
    site.send(batch("m", 0, [1, 2], columns=columns, records=opening("m", name=name)))  # type: ignore[arg-type]
    headers = {} if accept is None else {"accept": accept}
    request = site.client.build_request("GET", "/metrics", headers=headers)
    if accept is None:
        del request.headers["accept"]
    answer = site.client.send(request)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    parse = parse_open if kind.startswith("application") else parse_text
    families = {family.name: family for family in parse(answer.text)}
    values = {
        (s.labels["signal"], s.labels["group"]): s.value
        for s in families["watchkeeper_signal"].samples
        if s.labels["run"] == "m"
    }
    assert values[("loss", "train")] != values[("loss", "train")]  # NaN, as it is
    assert values[("x{y}", "")] == 3.0
    names = {s.labels["run"]: s.labels["name"] for s in families["watchkeeper_run"].samples}
    assert names["m"] == name


def test_a_run_that_ended_leaves_the_metrics(site: Running) -> None:
    site.send(batch("r", 0, [1], records=opening("r")))
    assert 'run="r"' in site.client.get("/metrics").text
    site.send(batch("r", 1, [2], records=[RunEnd("finished", 3.0, 2)]))
    assert 'run="r"' not in site.client.get("/metrics").text


def test_alive_and_ready(site: Running) -> None:
    assert site.get("/health/live") == {"status": "ok"}
    assert site.get("/health/ready") == {"status": "ok"}


PAGES = ["/", "/runs/r", "/runs/r/answers", "/alerts", "/alerts/x", "/login"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_needs_nothing_but_this_server(site: Running, page: str) -> None:
    """Every address in a page is relative, and what it names is there."""
    answer = site.client.get(page)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    addresses = re.findall(r'(?:href|src|action)="([^"]*)"', answer.text)
    assert addresses
    for address in addresses:
        assert not address.startswith(("/", "http:", "https:", "//")), address
        if address.startswith("#"):
            continue
        there = urljoin(site.url + page, address)
        assert urlsplit(there).netloc == urlsplit(site.url).netloc
        assert site.client.get(there).status_code == 200, address
    assert not re.search(r"<script(?![^>]*\bsrc=)", answer.text)
    assert " style=" not in answer.text


def test_the_chart_library_is_packed_and_kept(site: Running) -> None:
    page = site.client.get("/runs/r").text
    found = re.search(r"static/plotly-[\d.]+\.min\.js", page)
    path = found[0] if found else "static/plotly-7.1.0.min.js"
    with site.client.stream("GET", f"/{path}", headers={"accept-encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    plain = site.client.get(f"/{path}", headers={"accept-encoding": "identity"}).content
    assert gzip.decompress(raw) == plain
    assert len(raw) < len(plain) / 2


def test_our_own_files_are_asked_for_anew(site: Running) -> None:
    answer = site.client.get("/static/css/base.css")
    assert answer.headers["cache-control"] == "no-cache"
    again = site.client.get(
        "/static/css/base.css", headers={"if-none-match": answer.headers["etag"]}
    )
    assert again.status_code == 304
    assert site.client.get("/static/../app.py").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status"),
    [
        ("GET", "/api/v1/runs/none", b"", "", 404),
        ("GET", "/api/v1/alerts/none", b"", "", 404),
        ("GET", "/nothing", b"", "", 404),
        ("PUT", "/api/v1/runs", b"{}", "application/json", 405),
        ("GET", "/api/v1/runs?limit=x", b"", "", 422),
        ("GET", "/api/v1/runs?state=odd", b"", "", 422),
        ("GET", "/api/v1/runs?limit=99999", b"", "", 422),
        ("POST", "/api/v1/batches", b"{", "application/json", 400),
        ("POST", "/api/v1/batches", b"[]", "application/json", 422),
        ("POST", "/api/v1/batches", b"{}", "text/plain", 415),
        ("POST", "/api/v1/batches", b" " * (8 * 1024 * 1024 + 1), "application/json", 413),
        ("POST", "/api/v1/alerts/none/acknowledge", b"{}", "application/json", 404),
        ("POST", "/api/v1/alerts/none/acknowledge", b"{", "application/json", 400),
        ("POST", "/api/v1/alerts/x/resolve", b'{"was_fine":"maybe"}', "application/json", 422),
        ("DELETE", "/api/v1/runs/none", b"", "", 404),
        ("GET", "/static/none.css", b"", "", 404),
        ("GET", "/docs/detectors/none", b"", "", 404),
    ],
)
def test_every_error_is_a_problem(
    site: Running, method: str, path: str, body: bytes, kind: str, status: int
) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = site.client.request(method, path, content=body or None, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["detail"]


def test_the_server_refuses_a_bomb(site: Running) -> None:
    bomb = gzip.compress(b" " * (64 * 1024 * 1024))
    answer = site.client.post(
        "/api/v1/batches",
        content=bomb,
        headers={"content-type": "application/json", "content-encoding": "gzip"},
    )
    assert answer.status_code == 413


def test_another_host_name_is_refused_by_the_real_server(site: Running) -> None:
    answer = httpx.get(f"{site.url}/api/v1/runs", headers={"host": "evil.org"}, trust_env=False)
    assert answer.status_code == 403
