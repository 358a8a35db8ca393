"""The client's parts one by one: account, frames, thinning, spool, schedule, data, state."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer_hooks.data import RepeatMeter, RowTable, TimedLoader, WaitMeter, find_tokens, hash_rows
from trainer_hooks.loop.facts import git_state, package_versions
from trainer_hooks.loop.state import State, find_origin, read_state, write_state
from trainer_hooks.post.account import Account, Tally
from trainer_hooks.post.frames import Row, encode_batch, group
from trainer_hooks.post.intake import QUEUE_BYTES, QUEUE_ROWS, Intake
from trainer_hooks.post.segment import Head, make_entry
from trainer_hooks.post.thinning import count_values, thin
from trainer_hooks.spool import Spool, SpoolBusyError, find_leftovers
from trainer_hooks.transport import parse_retry_after, read_answer


def entry(seq: int, values: int = 10, *, tally: Tally | None = None) -> tuple[Head, bytes]:
    """A batch with one series of ``values`` points."""
    steps = list(range(seq * values, (seq + 1) * values))
    batch: dict[str, Any] = {"run": "r", "attempt": "a", "source": "s", "seq": seq, "sent_at": 1.0}
    rows = [Row("a", step, float(step), {"loss": math.sin(step)}) for step in steps]
    body = encode_batch(batch, group(rows), [])
    return make_entry(batch, values=values, acked=-1, tally=tally or Tally(), body=body)


_opened: list[Spool] = []


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().release()


def spool_at(folder: Path, **options: int) -> Spool:
    _opened.append(Spool.create(folder, {"run": "r", "source": "s", "server": "x"}, **options))
    return _opened[-1]


def reopen(folder: Path) -> tuple[Spool, Tally]:
    spool, tally = Spool.reopen(folder)
    _opened.append(spool)
    return spool, tally


class TestFrames:
    def test_series_of_one_cadence_share_a_frame(self) -> None:
        rows = [Row("a", s, s * 0.5, {"x": float(s)}) for s in range(4)]
        rows[2] = Row("a", 2, 1.0, {"x": 2.0, "y": 5.0, "z": 6.0})
        frames = group(rows).frames
        assert [(steps, sorted(c)) for steps, _, c in frames] == [
            ([0, 1, 2, 3], ["x"]),
            ([2], ["y", "z"]),
        ]

    def test_numbers_that_json_has_no_word_for(self) -> None:
        rows = [Row("a", 1, 0.0, {"n": math.nan, "p": math.inf, "m": -math.inf, "f": 0.1})]
        columns = group(rows)
        plain = json.loads(encode_batch({"run": "r"}, columns, []))
        assert plain["frames"][0]["columns"] == {
            "n": ["nan"],
            "p": ["inf"],
            "m": ["-inf"],
            "f": [0.1],
        }
        assert columns.values == 4

    def test_what_is_no_number_is_counted_and_left_out(self) -> None:
        rows = [Row("a", 1, 0.0, {"word": "hello", "big": 10**400, "yes": True, "int": 3})]
        columns = group(rows)
        assert (columns.values, columns.unusable) == (2, 2)


class TestQueue:
    def test_oldest_rows_give_way_and_are_counted(self) -> None:
        account = Account()
        intake = Intake(account)
        for step in range(QUEUE_ROWS + 50):
            intake.put(Row("a", step, 0.0, {"x": 1.0}))
        tally = account.read()
        assert (tally.produced, tally.queued, tally.dropped) == (QUEUE_ROWS + 50, QUEUE_ROWS, 50)
        taken = intake.take()
        assert taken is not None
        assert taken.rows[0].step == 50

    def test_wide_rows_are_bounded_in_bytes(self) -> None:
        account = Account()
        intake = Intake(account)
        wide = {f"s{i}": 1.0 for i in range(3000)}
        for step in range(400):
            intake.put(Row("a", step, 0.0, wide))
        tally = account.read()
        assert tally.queued * 64 <= QUEUE_BYTES
        assert tally.dropped > 0
        assert tally.adds_up()


class TestSpool:
    def test_order_and_values_survive_a_restart(self, tmp_path: Path) -> None:
        spool = spool_at(tmp_path / "run" / "s")
        for seq in range(5):
            spool.append(*entry(seq))
        first = spool.first()
        assert first is not None
        spool.settle(first[0])
        tally = Tally(produced=50, stored=10, spooled=40)
        spool.release(tally)
        again, recovered = reopen(tmp_path / "run" / "s")
        assert recovered == tally
        seqs = []
        while (found := again.first()) is not None:
            seqs.append(found[0].seq)
            again.settle(found[0])
        assert seqs == [1, 2, 3, 4]
        again.forget()
        assert find_leftovers(tmp_path) == []

    def test_after_a_kill_the_account_is_read_from_the_entries(self, tmp_path: Path) -> None:
        spool = spool_at(tmp_path / "run" / "s")
        spool.append(*entry(0, tally=Tally(produced=12, spooled=10, queued=2)))
        spool.append(*entry(1, tally=Tally(produced=25, spooled=20, queued=5)))
        spool.release()  # no cursor: as after SIGKILL
        _, tally = reopen(tmp_path / "run" / "s")
        assert (tally.produced, tally.spooled, tally.dropped) == (25, 20, 5)
        assert tally.adds_up()

    def test_a_torn_end_is_left_out(self, tmp_path: Path) -> None:
        spool = spool_at(tmp_path / "run" / "s")
        spool.append(*entry(0))
        spool.append(*entry(1))
        spool.release()
        (segment,) = (tmp_path / "run" / "s").glob("*.seg")
        segment.write_bytes(segment.read_bytes()[:-7])
        again, _ = reopen(tmp_path / "run" / "s")
        first = again.first()
        assert first is not None
        again.settle(first[0])
        assert again.first() is None

    def test_one_process_per_folder(self, tmp_path: Path) -> None:
        spool = spool_at(tmp_path / "run" / "s")
        spool.append(*entry(0))
        with pytest.raises(SpoolBusyError):
            Spool.reopen(tmp_path / "run" / "s")
        code = (
            "import sys; from pathlib import Path; from trainer_hooks.spool import *\n"
            "try: Spool.reopen(Path(sys.argv[1]))\n"
            "except SpoolBusyError: print('busy')"
        )
        args = [sys.executable, "-c", code, str(tmp_path / "run" / "s")]
        done = subprocess.run(args, capture_output=True, text=True, timeout=30, check=True)
        assert done.stdout.strip() == "busy"

    def test_above_the_cap_old_rows_are_thinned_and_counted(self, tmp_path: Path) -> None:
        spool = spool_at(tmp_path / "run" / "s", cap_bytes=200_000)
        produced = lost = 0
        for seq in range(400):
            head, body = entry(seq, values=100)
            produced += 100
            lost += spool.append(head, body)
        size = sum(p.stat().st_size for p in spool.folder.glob("*.seg"))
        assert size <= 200_000
        assert lost > 0
        kept: dict[int, int] = {}
        left = 0
        while (found := spool.first()) is not None:
            batch = json.loads(gzip.decompress(found[1]))
            assert count_values(batch) == found[0].values
            left += found[0].values
            for frame in batch["frames"]:
                for step in frame["steps"]:
                    kept[step] = kept.get(step, 0) + 1
            spool.settle(found[0])
        assert produced == left + lost
        assert set(kept.values()) == {1}
        newest, oldest = sum(s >= 39_000 for s in kept), sum(s < 1_000 for s in kept)
        assert newest == 1_000
        assert oldest < newest

    def test_an_attempted_batch_is_never_thinned(self, tmp_path: Path) -> None:
        spool = spool_at(tmp_path / "run" / "s", cap_bytes=60_000)
        spool.append(*entry(0, values=100))
        attempted = spool.first()
        for seq in range(1, 300):
            spool.append(*entry(seq, values=100))
        assert spool.first() == attempted

    def test_a_disk_that_refuses_is_waited_for_in_memory(self, tmp_path: Path) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("in the way")
        spool = spool_at(blocked / "run" / "s")
        assert spool.problem
        spool.append(*entry(0))
        assert spool.has_room()
        blocked.unlink()
        spool.append(*entry(1))
        assert not spool.problem
        assert len(list((blocked / "run" / "s").glob("*.seg"))) == 1
        seqs = []
        while (found := spool.first()) is not None:
            seqs.append(found[0].seq)
            spool.settle(found[0])
        assert seqs == [0, 1]

    def test_files_somebody_removed_are_counted_as_lost(self, tmp_path: Path) -> None:
        spool = spool_at(tmp_path / "run" / "s")
        spool.append(*entry(0))
        for path in spool.folder.glob("*.seg"):
            path.unlink()
        assert spool.first() is None
        assert spool.take_lost() == 10
        spool.append(*entry(1))
        found = spool.first()
        assert found is not None
        assert found[0].seq == 1


class TestThinning:
    def test_non_finite_values_stay(self) -> None:
        steps = list(range(100))
        cells: list[Any] = [0.5] * 100
        cells[33] = "nan"
        batch = {
            "attempt": "a",
            "seq": 0,
            "records": [],
            "frames": [{"steps": steps, "times": [0.0] * 100, "columns": {"x": cells}}],
        }
        (slim,) = thin([batch], 0)
        frame = slim["frames"][0]
        assert len(frame["steps"]) == 51
        assert frame["columns"]["x"][frame["steps"].index(33)] == "nan"


class TestTransport:
    @pytest.mark.parametrize(
        ("value", "wait_s"),
        [("2", 2.0), ("-5", 0.0), ("1e9", 3600.0), ("soon", None), (None, None), ("nan", None)],
    )
    def test_retry_after(self, value: str | None, wait_s: float | None) -> None:
        assert parse_retry_after(value, now_s=0.0) == wait_s

    def test_retry_after_as_a_date(self) -> None:
        date = "Thu, 01 Jan 1970 00:01:00 GMT"
        assert parse_retry_after(date, now_s=30.0) == 30.0

    @pytest.mark.parametrize(
        ("status", "kind"),
        [(400, "Refused"), (413, "Refused"), (415, "Refused"), (422, "Refused"), (410, "Deleted")]
        + [(s, "RetryLater") for s in (301, 401, 403, 404, 409, 429, 500, 501, 503, 507)],
    )
    def test_what_a_status_means(self, status: int, kind: str) -> None:
        assert type(read_answer(status, None, b'{"detail":"so"}')).__name__ == kind

    def test_a_login_page_is_no_receipt(self) -> None:
        assert type(read_answer(200, None, b"<html>")).__name__ == "RetryLater"


class TestWaits:
    def test_one_pause_is_one_stall(self) -> None:
        meter = WaitMeter()
        stalls = []
        for step in range(1000):
            meter.waited(2.0 if step == 500 else 0.001)
            stall = meter.end_step(0.01 + (2.0 if step == 500 else 0.0))[2]
            if stall:
                stalls.append((step, stall))
        assert [step for step, _ in stalls] == [500]
        assert stalls[0][1].wait_s == 2.0
        assert stalls[0][1].usual_s == pytest.approx(0.001)

    def test_a_loader_that_is_always_slow_does_not_stall(self) -> None:
        meter = WaitMeter()
        for _ in range(200):
            meter.waited(0.3)
            _, share, stall = meter.end_step(0.4)
            assert stall is None
        assert share == pytest.approx(0.75)

    def test_the_wait_is_the_time_in_next_alone(self) -> None:
        meter = WaitMeter()

        def ready() -> Any:
            yield from range(20)

        def slow() -> Any:
            for item in range(5):
                time.sleep(0.03)
                yield item

        def waits(source: Any) -> list[float]:
            meter.pending_s = 0.0
            found = []
            loader: Any = TimedLoader(
                source, begin=lambda: None, waited=found.append, served=lambda _: None
            )
            for _ in loader:
                time.sleep(0.005)
            return found

        assert max(waits(ready())) < 0.005
        assert min(waits(slow())) >= 0.03

    def test_the_loaders_own_error_passes(self) -> None:
        def broken() -> Any:
            yield 1
            raise OSError("disk")

        loader: Any = TimedLoader(
            broken(), begin=lambda: None, waited=lambda _: None, served=lambda _: None
        )
        with pytest.raises(OSError, match="disk"):
            list(loader)


class TestFingerprints:
    def test_repeats_beyond_the_declared_epochs(self) -> None:
        meter = RepeatMeter(declared_epochs=2)
        rows = list(range(1, 65))
        assert [meter.share(rows) for _ in range(4)] == [0.0, 0.0, 1.0, 1.0]
        assert meter.share([]) is None

    def test_the_table_is_bounded_and_invents_nothing(self) -> None:
        table = RowTable(slots=1024)
        assert table.serve(range(10**6, 10**6 + 50_000), 1) == 0
        assert table.serve([10**6 + 49_999], 1) == 1

    def test_equal_rows_hash_alike_and_others_do_not(self) -> None:
        torch = pytest.importorskip("torch")
        rows = torch.randint(0, 256, (512, 64), generator=torch.Generator().manual_seed(1))
        before = torch.get_rng_state()
        hashes = hash_rows(rows).tolist()
        assert len(set(hashes)) == 512
        assert hash_rows(rows[[5, 5]]).tolist() == [hashes[5]] * 2
        assert hash_rows(rows.to(torch.int32)).tolist() == hashes
        swapped = rows[:1, [1, 0, *range(2, 64)]]
        assert hash_rows(swapped).tolist() != hashes[:1]
        assert torch.equal(before, torch.get_rng_state())

    def test_zeros_of_other_lengths_and_float_rows(self) -> None:
        torch = pytest.importorskip("torch")
        assert (
            hash_rows(torch.zeros(1, 8).long()).item() != hash_rows(torch.zeros(1, 9).long()).item()
        )
        floats = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
        assert len(set(hash_rows(floats).tolist())) == 4

    def test_which_part_of_a_batch(self) -> None:
        torch = pytest.importorskip("torch")
        x, y = torch.zeros(2, 3), torch.ones(2, 3)
        assert find_tokens([x, y]) is x
        assert find_tokens({"labels": y, "input_ids": x}) is x
        assert find_tokens({"text": ["a"], "y": y}) is y
        assert find_tokens(["a", "b"]) is None


class TestState:
    def test_argument_then_environment_then_state_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "state.json"
        write_state(path, State("from-file", "a1", 3, 70, 700))
        found = find_origin(run=None, state_file=path, name="n", root=tmp_path)
        assert (found.run, found.earlier) == ("from-file", State("from-file", "a1", 3, 70, 700))
        monkeypatch.setenv("WATCHKEEPER_RUN", "from-env")
        assert find_origin(run=None, state_file=None, name="n", root=tmp_path).run == "from-env"
        assert find_origin(run="arg", state_file=None, name="n", root=tmp_path).run == "arg"

    def test_a_broken_state_file_is_as_good_as_none(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        path.write_text('{"run": "x"')
        assert read_state(path) is None

    def test_a_new_run_shows_its_name(self, tmp_path: Path) -> None:
        found = find_origin(run=None, state_file=None, name="Tiny GPT!", root=tmp_path)
        assert found.run.startswith("tiny-gpt-")
        assert not found.is_settled


class TestFacts:
    def test_commit_and_changes(self, tmp_path: Path) -> None:
        assert git_state(str(tmp_path)) == (None, None)
        env = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]

        def git(*words: str) -> None:
            subprocess.run(
                ["git", *who, *words], cwd=tmp_path, env=env, check=True, capture_output=True
            )

        git("init", "-q")
        (tmp_path / "a").write_text("1")
        git("add", "a")
        git("commit", "-qm", "x")
        commit, diff = git_state(str(tmp_path))
        assert commit is not None
        assert len(commit) == 40
        assert diff is None
        (tmp_path / "a").write_text("2")
        assert git_state(str(tmp_path))[1] is not None

    def test_python_is_always_there(self) -> None:
        assert package_versions([])["python"] == ".".join(map(str, sys.version_info[:3]))
