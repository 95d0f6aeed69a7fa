"""Faults that the suite must notice: one list for each folder, planted one at a time by tests/planted_faults.py."""

from tests.faults import metrics, models
from tests.faults.entry import Fault

ROOMS = metrics, models
FAULTS: list[Fault] = [fault for room in ROOMS for fault in room.FAULTS]
