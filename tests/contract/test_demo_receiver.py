"""The demo's webhook receiver believes nobody: forged, altered and repeated messages."""

import base64
import subprocess
import sys
from datetime import UTC, datetime

import httpx
import pytest
from standardwebhooks import Webhook

from monitor.cli._receiver import SECRET_VARIABLE

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
FORGED = "whsec_" + base64.b64encode(bytes(32)).decode()


@pytest.fixture(scope="module")
def url():
    running = subprocess.Popen(
        [sys.executable, "-m", "monitor.cli._receiver"],
        stdout=subprocess.PIPE,
        text=True,
        env={SECRET_VARIABLE: SECRET, "PYTHONPATH": ":".join(sys.path)},
    )
    try:
        yield f"http://127.0.0.1:{int(running.stdout.readline())}/"
    finally:
        running.terminate()
        running.communicate()


def post(url, message_id, body, secret=SECRET):
    now = datetime.now(UTC)
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, now, body),
    }
    return httpx.post(url, content=body, headers=headers).status_code


def counts(url):
    return httpx.get(url).json()


def test_signed_messages_count_once_each_and_forged_ones_not_at_all(url):
    assert post(url, "msg_1", "{}") == 200
    assert post(url, "msg_1", "{}") == 200
    assert post(url, "msg_2", "{}") == 200
    assert counts(url) == {"delivered": 2, "forged": 0, "changed": 0}
    assert post(url, "msg_3", "{}", FORGED) == 401
    assert httpx.post(url, content="{}").status_code == 401
    assert counts(url) == {"delivered": 2, "forged": 2, "changed": 0}
    assert post(url, "msg_1", '{"other": 1}') == 200
    assert counts(url) == {"delivered": 2, "forged": 2, "changed": 1}
