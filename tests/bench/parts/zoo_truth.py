"""What has to be said of each fault of the zoo: by whom, how soon, and which cause is right.

The causes were written down from what each fault does, in the words the detectors have for it,
before any alert was scored by them. They are patterns (regular expressions, case ignored) of the
first-ranked cause's text; what says "unexplained" is never right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ANY_STEP = 10_000


@dataclass(frozen=True, slots=True)
class Expected:
    """``limit``: steps after the onset within which one of ``detectors`` has to open.

    ``cause``: pattern of the injected cause; empty where no signal of the run can name it.
    """

    limit: int
    detectors: tuple[str, ...]
    cause: str = ""

    def is_right(self, cause: str) -> bool:
        """Whether an alert's first-ranked cause is the injected one."""
        return not cause.startswith("unexplained") and bool(re.search(self.cause, cause, re.I))


OF_THE_MACHINE = ("throughput_drop", "straggler", "behind_plan", "data_stall")
"""They judge real times: of a run trained on a machine that others use they are right, and beside
the point. They are counted apart, and not as false alarms."""

REPEATS = r"stale data|served before|repeat|began .*again|same data|over-?fits"
RESUMED = r"resum|optimizer's state|checkpoint"
BATCH = r"could not digest|foreign data|broken (operation or )?batch"
DECAY = r"weight decay|norms? (outgrew|grew)|decay cannot hold"

EXPECTED: dict[str, Expected] = {
    "stale_loader": Expected(20, ("stale_data",), REPEATS),
    "over_training": Expected(400, ("overconfidence", "stale_data"), REPEATS),
    "no_decay": Expected(ANY_STEP, ("norm_blowup", "effective_lr_decay"), DECAY),
    "zero_lr": Expected(40, ("dead_update", "loss_plateau"), r"learning rate is 0|set to 0"),
    "nan_loss": Expected(1, ("non_finite",), r"overflow|broken operation"),
    "bad_batch": Expected(5, ("loss_spike",), BATCH),
    "slow_loader": Expected(150, ("data_stall",), r"loader|shard|processors|workers|storage"),
    "frozen_layer": Expected(40, ("dead_update",), r"frozen|no gradient|given to the optimizer"),
    "bf16_weights": Expected(200, ("dead_update",), r"round|bfloat16|bf16|precision"),
    "resume_noopt": Expected(50, ("resume_jump",), RESUMED),
    "lr_times_ten": Expected(50, ("resume_jump", "loss_spike", "divergence"), r"learning rate"),
    "template_leak": Expected(50, ("template_leak",), r"template|chat"),
    "label_shift": Expected(
        200, ("train_heldout_gap", "divergence", "slow_drift"), r"label|target|shift|leak"
    ),
    "counted_twice": Expected(
        50,
        ("resume_jump", "train_heldout_gap", "loss_spike", "divergence"),
        r"counted|summed|accumul|resum",
    ),
    "dropout_in_eval": Expected(
        200, ("train_heldout_gap", "slow_drift"), r"dropout|training mode|eval"
    ),
    "source_regression": Expected(
        300, ("source_regression",), r"no longer like the probe|served as|labels"
    ),
    "starved_source": Expected(
        100, ("data_drift", "source_regression"), r"dropped|ran dry|less of|mix of sources"
    ),
    "slow_progress": Expected(450, ("loss_plateau", "dead_update"), r"skipped|without gradients"),
    "short_answers": Expected(450, ("answers_drift",), r"shorter|ends? earlier"),
    "rank_desync": Expected(51, ("rank_desync",), r"reduce|reduc|in step|synchron|collective"),
    "same_seed": Expected(151, ("rank_twins",), r"seed|sampler"),
}
