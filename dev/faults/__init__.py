"""Faults that the suite must notice: one list for each folder, planted one at a time by dev/planted_faults.py."""

from dev.faults import metrics, models
from dev.faults.entry import Fault

ROOMS = metrics, models
FAULTS: list[Fault] = [fault for room in ROOMS for fault in room.FAULTS]
