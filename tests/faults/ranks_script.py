"""``ranks_script.py RANK MEETING SERVER SPOOL STORY``: one of two ranks, to its end."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from trainer_hooks import watch


def main(rank: int, meeting: str, server: str, spool: str, story: str) -> None:
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    torch.manual_seed(0)
    inner = torch.nn.Linear(4, 4)
    model = torch.nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    has_watch = not (story == "one watch only" and rank == 1)
    w = None
    if has_watch:
        w = watch(model, optimizer, run="ranks", server=server, spool_dir=spool, every={"ranks": 5})
    same = 0 if story == "same data" else rank
    torch.manual_seed(10 + same)
    loader = [torch.randint(0, 100, (2, 4)) for _ in range(40)]
    for step, batch in enumerate(w.data(loader) if w else loader, start=1):
        loss = model(batch.float()).square().mean() / 1e4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if story == "parted" and rank == 1 and step == 22:
            with torch.no_grad():
                inner.weight[0, 0] += 1e-3
        if w:
            w.step(loss=loss, tokens=8)
    if w:
        w.close()
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:6])
