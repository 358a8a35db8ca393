"""``watchkeeper sample``: ask checkpoints, or a completions server, beside the training."""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.errors import WatchkeeperError

if TYPE_CHECKING:
    from trainer_hooks.answers.beside.checkpoints import Checkpoint
    from trainer_hooks.answers.beside.jobs import Asker, Every
    from trainer_hooks.answers.beside.run import RunReader, Way
    from trainer_hooks.answers.prompts import PromptSet

NICE = 10
POLL_S = 15.0


class SampleError(WatchkeeperError):
    """The command cannot begin."""

    status = 2
    title = "Nothing can be sampled"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    from trainer_hooks.answers.beside.checkpoints import SETTLE_S

    add = parser.add_argument_group("who is asked").add_argument
    add("--checkpoints", type=Path, help="folder in which checkpoints appear")
    add("--load", metavar="MODULE:FUNCTION", help="(path, device) -> model, or (model, tokenizer)")
    add("--hf", action="store_true", help="the checkpoints are Hugging Face folders")
    add("--endpoint", metavar="URL", help="a completions server, up to /v1")
    add("--model", default="", help="with --endpoint: the model's name there")
    add("--step", type=int, help="with --endpoint: the step of the weights it serves")
    add("--begin", default="", help="with --endpoint: what is sent as the empty prompt")
    add = parser.add_argument_group("what, when and where to").add_argument
    add("--prompts", type=Path, help="prompt set, JSON or YAML")
    add("--run", help="the run's id (default: WATCHKEEPER_RUN)")
    add("--server", help="the server (default: WATCHKEEPER_SERVER, or this machine)")
    add("--every", help="how far apart sampled checkpoints are: 1d, 6h, or a number of steps")
    add("--match", help="only checkpoints with names like this: 'step-*.pt'")
    add("--settle", type=float, default=SETTLE_S, help="seconds to lie unchanged (default: 10)")
    add("--state", type=Path, help="file that remembers what is done")
    add("--poll", type=float, default=POLL_S, help="seconds between two looks (default: 15)")
    add("--once", action="store_true", help="do what there is to do, and end")
    add = parser.add_argument_group("how").add_argument
    add("--device", default="cpu", help="cpu, cuda:1, ... (default: cpu)")
    add("--threads", type=int, default=1, help="CPU threads (default: 1)")
    add("--nice", type=int, default=NICE, help="how far it steps back (default: 10)")


def run(options: argparse.Namespace) -> int:
    """Exit status 0 when all that was due is done, 1 when something is left (with ``--once``)."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    every = _checked(options)
    if options.nice:
        os.nice(options.nice)
    return _endpoint(options, every) if options.endpoint else _checkpoints(options, every)


def _checked(options: argparse.Namespace) -> Every:
    from trainer_hooks.answers.beside.jobs import parse_every

    options.run = options.run or os.environ.get("WATCHKEEPER_RUN")
    if not options.run:
        raise SampleError("Which run?", hint="--run ID, or WATCHKEEPER_RUN.")
    if bool(options.endpoint) == bool(options.checkpoints):
        raise SampleError("Who is asked?", hint="--checkpoints DIR, or --endpoint URL.")
    if options.checkpoints and bool(options.load) == options.hf:
        raise SampleError("How is it loaded?", hint="--load module:function, or --hf.")
    if options.endpoint and not (options.model and options.prompts):
        raise SampleError("An endpoint needs --model and --prompts.")
    try:
        return parse_every(options.every)
    except ValueError as error:
        raise SampleError(str(error)) from None


def _checkpoints(options: argparse.Namespace, every: Every) -> int:
    from trainer_hooks.answers.beside.checkpoints import Folder
    from trainer_hooks.answers.beside.jobs import Jobs, Memory

    folder = Folder(options.checkpoints, match=options.match, settle_s=options.settle)
    reader, way = _to_server(options)
    memory = Memory.read(options.state or _state_path(options))
    jobs = Jobs(folder, _model_asker(options), reader, way, memory, every=every)
    deadline = time.monotonic() + options.settle + 1
    while True:
        done, failed = jobs.run_once()
        if (
            options.once
            and not done
            and (failed or not folder.waits or time.monotonic() > deadline)
        ):
            return 1 if failed else 0
        if not done:
            time.sleep(min(options.poll, 1.0) if options.once else options.poll)


def _model_asker(options: argparse.Namespace) -> Asker:
    import torch

    from trainer_hooks.answers.beside.models import ModelAsker, find_load, load_hugging_face

    torch.set_num_threads(max(1, options.threads))
    prompts = _prompts(options.prompts)
    try:
        load = load_hugging_face if options.hf else find_load(options.load)
    except ValueError as error:
        raise SampleError(str(error)) from None
    label = f"{prompts.hash if prompts else 'its own'}:{'hf' if options.hf else options.load}"
    return ModelAsker(load, prompts, options.device, label)


def _prompts(path: Path | None) -> PromptSet | None:
    from trainer_hooks.answers.prompts import PromptSet

    if path is None:
        return None
    try:
        return PromptSet.from_file(path)
    except (ValueError, OSError) as error:
        raise SampleError(str(error)) from None


def _to_server(options: argparse.Namespace) -> tuple[RunReader, Way]:
    from trainer_hooks.answers.beside.run import RunReader, Way
    from trainer_hooks.loop.options import DEFAULT_SERVER
    from trainer_hooks.transport import Transport

    server = options.server or os.environ.get("WATCHKEEPER_SERVER") or DEFAULT_SERVER
    read = os.environ.get("WATCHKEEPER_READ_TOKEN") or None
    ingest = os.environ.get("WATCHKEEPER_INGEST_TOKEN") or None
    return RunReader(server, options.run, read), Way(options.run, Transport(server, token=ingest))


def _state_path(options: argparse.Namespace) -> Path:
    """Beside the spools: the checkpoints' folder may be read-only, and is not ours."""
    from trainer_hooks.loop.state import spool_root
    from trainer_hooks.spool import run_folder

    return run_folder(spool_root(None), options.run) / "sampled.json"


def _endpoint(options: argparse.Namespace, every: Every) -> int:
    """Ask the endpoint now, and again whenever the interval has passed."""
    from trainer_hooks.answers.beside.endpoint import EndpointAsker
    from trainer_hooks.answers.beside.jobs import Jobs, Memory

    prompts = _prompts(options.prompts)
    if prompts is None:
        raise SampleError("An endpoint needs --prompts.")
    key = os.environ.get("WATCHKEEPER_ENDPOINT_KEY") or None
    asker = EndpointAsker(options.endpoint, options.model, prompts, key=key, begin=options.begin)
    reader, way = _to_server(options)
    memory = Memory.read(options.state or _state_path(options))
    source = _Served(options.model, lambda: options.step or reader.look().last_step)
    jobs = Jobs(source, asker, reader, way, memory, every=every)
    while True:
        done, failed = jobs.run_once()
        if options.once:
            return 0 if done else 1
        time.sleep(max(options.poll, every.seconds / 100) if not failed else options.poll)


class _Served:
    """What an endpoint serves, as the one checkpoint there is: its step, and now."""

    def __init__(self, model: str, step: Callable[[], int]) -> None:
        self._model = model
        self._step = step

    def ready(self) -> list[Checkpoint]:
        from trainer_hooks.answers.beside.checkpoints import Checkpoint
        from trainer_hooks.answers.beside.run import RunUnknownError

        try:
            return [Checkpoint(Path(self._model), self._step(), time.time())]
        except RunUnknownError as error:
            logging.getLogger("trainer_hooks").warning("%s", error)
            return []
