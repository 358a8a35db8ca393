"""Runs inside the rivals' own environment: series in, a line each; the steps they speak at, out.

Only warnings or worse count. trainpulse is fed point by point, as in a loop; the others read a
whole log after the fact, and are taken at the step they name. Those give no answer in time: what
they say of a step they may say only because of what came later.
"""

import importlib
import json
import sys
from pathlib import Path


def trainpulse(series):
    module = importlib.import_module("trainpulse")
    monitor = module.Monitor()
    said, firing = [], set()
    names = {"loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate"}
    for step, name, value in sorted(
        (step, names[key], value) for key in names for step, value in series.get(key, [])
    ):
        hits = [a for a in monitor.log(name, step, value) if a.severity.value != "info"]
        for hit in hits:
            # One that speaks at every point of a spell is counted once for the spell.
            if (name, hit.detector) not in firing:
                said.append(step)
        firing = {f for f in firing if f[0] != name} | {(name, hit.detector) for hit in hits}
    return said


def trainspotter(series):
    module = importlib.import_module("trainspotter")
    run = module.Run()
    names = {
        "loss": "train/loss",
        "val_loss": "eval/loss",
        "grad_norm": "train/grad_norm",
        "lr": "train/learning_rate",
    }
    for key, name in names.items():
        for step, value in series.get(key, []):
            run.add_point(name, step, value)
    return [f.step_start for f in module.run_all(run) if f.severity != "info"]


def losslint(series):
    checks = importlib.import_module("losslint.checks")
    parsing = importlib.import_module("losslint.parsing")
    names = {
        "loss": "loss",
        "val_loss": "eval_loss",
        "grad_norm": "grad_norm",
        "lr": "learning_rate",
    }
    steps = sorted({step for key in names for step, _ in series.get(key, [])})
    columns = {}
    for key, name in names.items():
        points = dict(series.get(key, []))
        if points:
            columns[name] = [points.get(step) for step in steps]
    run = parsing.RunLog(steps, columns, Path("run.jsonl"))
    found = [f for f in checks.run_all_checks(run) if f.severity in ("warning", "error")]
    return [_step_of(finding.details, steps) for finding in found]


def _step_of(details, steps):
    for name, value in details.items():
        if "step" in name and isinstance(value, int | float):
            return int(value)
        if "step" in name and isinstance(value, list) and value:
            return int(value[0])
    return steps[-1]  # it names none: said at the end


def runmedic(series):
    checks = importlib.import_module("runmedic.checks")
    model = importlib.import_module("runmedic.model")
    roles = importlib.import_module("runmedic.roles")
    run = model.Run("run", "memory", "run")
    last = 0
    for name, points in series.items():
        one = model.Series(name)
        for step, value in points:
            one.add(step, value)
            last = max(last, step)
        run.series[name] = one
    found = checks.run_checks(run, roles.detect(run))
    return [
        int(last if finding.step is None else finding.step)
        for finding in found
        if finding.severity != "info"
    ]


RIVALS = {rival.__name__: rival for rival in (trainpulse, trainspotter, losslint, runmedic)}


def main():
    for line in sys.stdin:
        series = {
            key: [(int(step), float(value)) for step, value in points]
            for key, points in json.loads(line).items()
        }
        answer = {}
        for name, rival in RIVALS.items():
            try:
                answer[name] = rival(series)
            except Exception as error:
                answer[name] = f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
