"""A watch that does nothing: on ranks other than the first, in copies, and where pickled."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from trainer_hooks.data import TimedLoader, WaitMeter, find_tokens, hash_rows
from trainer_hooks.loop.member import Member
from trainer_hooks.loop.options import Options
from trainer_hooks.loop.ranks import RankTeam, batch_hash

log = logging.getLogger("trainer_hooks")

T = TypeVar("T")


class InertWatch:
    """Takes every call of ``Watch`` and does nothing."""

    run: str = ""

    def data(self, loader: Iterable[T], **_options: Any) -> Iterable[T]:
        """The loader itself."""
        return loader

    def step(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def micro(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def predicted(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def log(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def log_heldout(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def log_eval(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def event(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def sample_answers(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    @contextmanager
    def phase(self, *_args: Any, **_values: Any) -> Iterator[None]:
        """Runs what is inside."""
        yield

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing."""

    def close(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def __enter__(self) -> InertWatch:
        return self

    def __exit__(self, *_error: object) -> None:
        return None


class RankWatch(InertWatch):
    """The watch of a rank other than the first: it takes part in what ranks do together.

    That is the comparison of ranks, and the norms of a model in shards.

    Whatever goes wrong in it ends its part, and nothing else.
    """

    def __init__(self, team: RankTeam | None, member: Member | None = None) -> None:
        self._team = team
        self._member = member
        self._done = 0
        self._waits = WaitMeter()
        self._hashes: list[Any] = []
        self._ended_s: float | None = None

    @classmethod
    def of(cls, model: Any, optimizers: Sequence[Any], options: Options) -> InertWatch:
        """The watch of another rank; one that does nothing where ranks do nothing together."""
        try:
            member = Member.of(model, optimizers, options)
            team = options.team(model, lambda why: log.info("ranks are not compared: %s", why))
        except Exception:
            log.warning("this rank takes no part in the comparison", exc_info=True)
            return InertWatch()
        return InertWatch() if team is None and member is None else cls(team, member)

    def data(self, loader: Iterable[T], **_options: Any) -> Iterable[T]:
        """The loader, timed, its batches hashed."""
        return TimedLoader(
            loader, begin=lambda: None, waited=self._waits.waited, served=self._served
        )

    def step(
        self,
        loss: Any = None,
        tokens: int | None = None,
        grad_norm: Any = None,
        *,
        step: int | None = None,
    ) -> None:
        """One optimizer step is done."""
        self._done = self._done + 1 if step is None else int(step)
        now = time.perf_counter()
        step_s = None if self._ended_s is None else now - self._ended_s
        self._ended_s = now
        fetched = self._waits.fetched
        wait_s, _, _ = self._waits.end_step(step_s)
        hashes, self._hashes = self._hashes, []
        self._add_part(grad_norm, step_s)
        self._try(lambda team: team.step(
            self._done, batch_hash(hashes), step_s, wait_s if fetched else math.nan
        ))  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Steps are counted from the checkpoint's."""
        self._done = int(state.get("step", self._done))
        if self._member is not None:
            self._member.resume(self._done)

    def close(self, *_args: Any, **_values: Any) -> None:
        """Take no further part."""
        if self._member is not None:
            self._member.close()
        self._team = self._member = None

    def _add_part(self, grad_norm: Any, step_s: float | None) -> None:
        if self._member is None:
            return
        try:
            self._member.step(self._done, grad_norm, step_s)
        except Exception:
            log.warning("this rank's part of the model is not measured any more", exc_info=True)
            self._member = None

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[InertWatch], tuple[()]]:
        return InertWatch, ()

    def _served(self, batch: Any) -> None:
        def keep(_team: RankTeam) -> None:
            tokens = find_tokens(batch)
            if tokens is not None and len(tokens):
                self._hashes.append(hash_rows(tokens))

        self._try(keep)

    def _try(self, act: Callable[[RankTeam], object]) -> None:
        if self._team is None:
            return
        try:
            act(self._team)
        except Exception:
            log.warning("this rank takes no further part in the comparison", exc_info=True)
            self._team = None
