"""Whatever bytes come: frames, or an error with a name. Never anything else."""

from __future__ import annotations

import gzip
import io
import json
import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.errors import UnreadableLog
from monitor.importers import IMPORTERS, read_log
from monitor.importers.tfrecord import crc32c, masked
from monitor.services.importing import batches
from monitor.services.parsing import parse
from trainer_hooks.wire import encode

NAMES = st.sampled_from(
    ["step", "loss", "val_loss", "lr", "epoch", "tokens", "samples", "time", "train_time_ms",
     "grad_norm", "_step", "a - b", "x__MIN", "val_entropy", "val_conf", "", "é\x00",
     "loss_" + "x" * 600, "val_" + "x" * 600 + "_loss"]
)  # fmt: skip
CELLS = st.one_of(
    st.floats().map(repr), st.integers().map(str), st.text(max_size=8),
    st.sampled_from(["nan", "inf", "", "np.float64(2)", "1e999", "2025-01-01", "-1", "0"]),
)  # fmt: skip
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(data: bytes, form: str | None = None) -> None:
    """Read, and see that what was read is taken by the server to its last value."""
    try:
        found = read_log(io.BytesIO(data), form=form)
    except UnreadableLog:
        return
    taken = 0
    for batch in batches(found, run="r", name="r"):
        steps = batch.frames[0].steps
        assert steps == sorted(set(steps))
        parsed = parse(encode(batch))
        assert parsed.refusals.values == 0, parsed.refusals.listed
        assert parsed.refusals.records == 0, parsed.refusals.listed
        taken += parsed.values
    assert taken == found.values > 0


@QUICK
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    check(data)


@QUICK
@given(st.binary(max_size=200), st.sampled_from(sorted(IMPORTERS)))
def test_any_bytes_under_any_format(data: bytes, form: str) -> None:
    check(data, form)


@QUICK
@given(st.lists(NAMES, min_size=1, max_size=5), st.lists(st.lists(CELLS, max_size=6), max_size=12))
def test_any_table(names: list[str], rows: list[list[str]]) -> None:
    lines = [",".join(names), *(",".join(row) for row in rows)]
    check("\n".join(lines).encode("utf-8", "replace"))


@QUICK
@given(
    st.lists(
        st.dictionaries(
            NAMES,
            st.recursive(
                st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=6),
                lambda inner: (
                    st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2)
                ),
                max_leaves=4,
            ),
            max_size=4,
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_any_objects(items: list[dict[str, object]], as_state: bool) -> None:
    lines = "\n".join(json.dumps(item) for item in items)
    state = json.dumps({"log_history": items, "max_steps": len(items)})
    check((state if as_state else lines).encode("utf-8", "replace"))


@QUICK
@given(st.lists(st.binary(max_size=60), max_size=6), st.binary(max_size=10))
def test_any_records(records: list[bytes], tail: bytes) -> None:
    framed = b"".join(
        (head := struct.pack("<Q", len(r))) + struct.pack("<I", masked(crc32c(head)))
        + r + struct.pack("<I", masked(crc32c(r)))
        for r in records
    )  # fmt: skip
    check(framed + tail)


@QUICK
@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_cut_of_a_gzip_file(data: bytes, cut: int) -> None:
    check(gzip.compress(b"step,loss\n1,2\n" + data)[:cut])
