"""A body is inflated in pieces and never beyond its bound."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib

import pytest

from monitor.errors import MalformedBody, TooLarge, UnsupportedCoding
from monitor.services.inflating import inflate
from trainer_hooks.wire import MAX_BODY_BYTES

BOMB = """
import gzip, resource, sys
from monitor.errors import TooLarge
from monitor.services.inflating import inflate
bomb = open(sys.argv[1], "rb").read()
inflate(gzip.compress(b"{}"), "gzip")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    inflate(bomb, "gzip")
except TooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path) -> None:
    file = tmp_path / "bomb.gz"
    file.write_bytes(gzip.compress(bytes(64 << 20)))
    assert file.stat().st_size < 70_000
    run = [sys.executable, "-c", BOMB, str(file)]
    grown_kib = int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert grown_kib < 32 * 1024


def test_a_bomb_of_many_members_is_refused_too() -> None:
    with pytest.raises(TooLarge):
        inflate(gzip.compress(bytes(1 << 20)) * 9, "gzip")


def test_what_just_fits_is_taken() -> None:
    whole = bytes(MAX_BODY_BYTES)
    assert inflate(gzip.compress(whole), "gzip") == whole
    assert inflate(whole, None) == whole
    with pytest.raises(TooLarge):
        inflate(gzip.compress(whole + b"x"), "gzip")


@pytest.mark.parametrize("coding", [None, "", "identity", " Identity "])
def test_no_coding(coding: str | None) -> None:
    assert inflate(b"{}", coding) == b"{}"


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "gzip;q=1"])
def test_an_unknown_coding_is_named(coding: str) -> None:
    with pytest.raises(UnsupportedCoding, match="not understood"):
        inflate(b"{}", coding)


def test_members_join_and_padding_is_passed_over() -> None:
    body = gzip.compress(b"one ") + b"\0\0" + gzip.compress(b"") + gzip.compress(b"two")
    assert inflate(body, "x-gzip") == b"one two"


@pytest.mark.parametrize("end", range(1, 60))
def test_any_cut_is_malformed(end: int) -> None:
    body = gzip.compress(b"a body that is long enough to be cut in many places")
    with pytest.raises(MalformedBody):
        inflate(body[:end], "gzip")


@pytest.mark.parametrize("body", [b"", b"{}", zlib.compress(b"{}"), gzip.compress(b"{}") + b"x"])
def test_what_is_not_gzip_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        inflate(body, "gzip")


def test_a_damaged_member_is_malformed() -> None:
    body = bytearray(gzip.compress(b"hello hello hello hello"))
    body[-6] ^= 1
    with pytest.raises(MalformedBody):
        inflate(bytes(body), "gzip")
