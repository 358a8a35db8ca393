"""Figures of what is fed, without labels, made on the client's own thread.

Shapes: B rows, T time, V buckets of token ids.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from trainer_hooks.feed.sample import Sample
from trainer_hooks.feed.settings import Feed
from trainer_hooks.wire import Asleep, SeriesSpec, series_key

BUCKETS = 4_096
"""Token ids are counted modulo this: exact for small vocabularies, bounded for large ones."""

REFERENCE_SHARE = 0.01
REFERENCE_STEPS = (20, 500)
"""The reference is the first hundredth of the plan, within these bounds; without a plan, 100."""

WINDOW_STEPS = 64
FEWEST_ENDS = 32
"""Of documents in the window: with fewer the length is not known to 20 %, and not told."""
MAX_SOURCES = 64
SMOOTHING = 0.5


def reference_steps(planned_steps: int | None) -> int:
    """How many steps make the reference that later batches are compared with."""
    if not planned_steps:
        return 100
    fewest, most = REFERENCE_STEPS
    return min(max(fewest, int(planned_steps * REFERENCE_SHARE)), most)


class UnigramReference:
    """Counts of token ids over the first steps, then frozen; batches are compared with it."""

    def __init__(self, steps: int) -> None:
        self.steps_left = steps
        self._counts_V: Any = None

    @property
    def is_frozen(self) -> bool:
        """Whether it is complete."""
        return self.steps_left <= 0 and self._counts_V is not None

    def state(self) -> dict[str, int]:
        """Counts by bucket, those above 0."""
        counts = [] if self._counts_V is None else self._counts_V.tolist()
        return {str(bucket): int(count) for bucket, count in enumerate(counts) if count}

    def restore(self, state: Mapping[str, int]) -> None:
        """Take a complete reference over; raises where it is none (ValueError, TypeError)."""
        torch: Any = sys.modules["torch"]
        counts_V = torch.zeros(BUCKETS, dtype=torch.float64)
        for bucket, count in state.items():
            counts_V[int(bucket) % BUCKETS] += int(count)
        if not counts_V.any():
            raise ValueError("an empty reference")
        self.steps_left, self._counts_V = 0, counts_V

    def divergence(self, tokens_N: Any) -> float | None:
        """KL of these tokens' distribution against the reference, nats; None while it is learnt.

        Both are smoothed by half a count for each bucket that either has seen: a token that the
        reference has never seen costs much, and never infinitely much.
        """
        torch: Any = sys.modules["torch"]
        counts_V = torch.bincount(tokens_N.long() % BUCKETS, minlength=BUCKETS).double()
        if self.steps_left > 0:
            self.steps_left -= 1
            self._counts_V = counts_V if self._counts_V is None else self._counts_V + counts_V
            return None
        seen = (counts_V > 0) | (self._counts_V > 0)
        now, before = counts_V[seen] + SMOOTHING, self._counts_V[seen] + SMOOTHING
        p, q = now / now.sum(), before / before.sum()
        return max(0.0, float((p * (p / q).log()).sum()))


def share_of_rows_with(rows_BT: Any, patterns: Sequence[Sequence[int]]) -> float:
    """Share of the rows that hold at least one of the token sequences."""
    torch: Any = sys.modules["torch"]
    holds_B = torch.zeros(rows_BT.shape[0], dtype=torch.bool)
    for pattern in patterns:
        width = rows_BT.shape[1] - len(pattern) + 1
        if width < 1:
            continue
        rows, places = (rows_BT[:, :width] == pattern[0]).nonzero(as_tuple=True)
        for offset, token in enumerate(pattern[1:], start=1):
            if not len(rows):
                break
            same = rows_BT[rows, places + offset] == token
            rows, places = rows[same], places[same]
        holds_B[rows] = True
    return float(holds_B.double().mean())


class FeedMeter:
    """Template, end-token, padding and source shares, document length, unigram divergence."""

    name = "feed"

    def __init__(self, feed: Feed, planned_steps: int | None = None) -> None:
        self._feed = feed
        self._patterns = feed.patterns()
        self.reference = UnigramReference(reference_steps(planned_steps))
        self._documents: deque[tuple[int, int]] = deque(maxlen=WINDOW_STEPS)
        self._sources: dict[str, None] = {}

    def specs(self) -> list[SeriesSpec]:
        """The series that are filled whoever the sources are; those get plain specs."""
        return [_spec(name) for name in _HELP if name != "source_share"]

    def asleep(self) -> list[Asleep]:
        """What waits for a setting."""
        found = []
        if not self._patterns:
            wake = "watch(..., feed=Feed(encode=tokenizer.encode))"
            found.append(Asleep("template_share", "template tokens", wake))
        if self._feed.eos is None:
            wake = "watch(..., feed=Feed(eos=tokenizer.eos_token_id))"
            found.append(Asleep("eos_share, doc_len", "the end token", wake))
        if self._feed.pad is None:
            wake = "watch(..., feed=Feed(pad=tokenizer.pad_token_id))"
            found.append(Asleep("pad_share", "the padding token", wake))
        if self._feed.sources is None:
            wake = "watch(..., feed=Feed(sources=lambda batch: batch['source']))"
            found.append(Asleep("source_share", "the rows' sources", wake))
        return found

    def measure(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Figures of one step's batches; what cannot be told is left out."""
        found = self._source_shares([name for sample in samples for name in sample.sources])
        rows = [sample.tokens_BT for sample in samples if sample.tokens_BT is not None]
        if not rows:
            return found
        torch: Any = sys.modules["torch"]
        tokens_N = torch.cat([part.reshape(-1) for part in rows])
        if self._feed.pad is not None:
            pads = int((tokens_N == self._feed.pad).sum())
            found["pad_share"] = pads / len(tokens_N)
            if self._feed.pad != self._feed.eos:
                tokens_N = tokens_N[tokens_N != self._feed.pad]
        if self._patterns:
            count = sum(len(part) for part in rows)
            shares = [share_of_rows_with(part, self._patterns) * len(part) for part in rows]
            found["template_share"] = sum(shares) / count
        if len(tokens_N):
            self._add_text(found, tokens_N)
        return found

    def _add_text(self, found: dict[str, float], tokens_N: Any) -> None:
        divergence = self.reference.divergence(tokens_N)
        if divergence is not None:
            found["batch_unigram_kl"] = divergence
        if self._feed.eos is None:
            return
        ends = int((tokens_N == self._feed.eos).sum())
        found["eos_share"] = ends / len(tokens_N)
        # Rows cut documents: tokens over ends is the estimate that a cut does not bias.
        self._documents.append((len(tokens_N), ends))
        total, all_ends = (sum(column) for column in zip(*self._documents, strict=True))
        if all_ends >= FEWEST_ENDS:
            found["doc_len"] = total / all_ends

    def _source_shares(self, names: Sequence[str]) -> dict[str, float]:
        """Every source that was ever seen has a share: one that stops coming has 0."""
        if not names:
            return {}
        counts = Counter(map(str, names))
        for name in counts:
            if len(self._sources) < MAX_SOURCES:
                self._sources.setdefault(name)
        return {
            series_key("source_share", "", name): counts[name] / len(names)
            for name in self._sources
        }


_HELP = {
    "template_share": ("", "share of the rows that hold marks of a chat template"),
    "batch_unigram_kl": ("nat", "KL of the batch's token counts against the run's beginning"),
    "doc_len": ("token", "tokens for each end of a document, over the last 64 steps"),
    "eos_share": ("", "share of the tokens that end a document"),
    "pad_share": ("", "share of the tokens that are padding"),
    "source_share": ("", "share of the rows that come from the source"),
}


def _spec(name: str, source: str = "") -> SeriesSpec:
    unit, text = _HELP[name]
    key = series_key(name, "", source)
    return SeriesSpec(key, name, source=source, unit=unit, family="data", help=text)


def source_spec(source: str) -> SeriesSpec:
    """What a source's share is."""
    return _spec("source_share", source)
