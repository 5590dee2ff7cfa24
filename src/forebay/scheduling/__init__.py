"""Which sequence runs when: length classes, queues, the step-time model and the scheduler. Policy only; nothing is
executed here."""

from forebay.scheduling.config import SchedulerConfig
from forebay.scheduling.plan import Row, SequenceUpdate, StepPlan
from forebay.scheduling.scheduler import Scheduler
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.step_time import StepTimeModel

__all__ = ["Row", "Scheduler", "SchedulerConfig", "Sequence", "SequenceUpdate", "StepPlan", "StepTimeModel"]
