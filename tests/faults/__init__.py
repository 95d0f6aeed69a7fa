"""Faults that the suite must notice: one list for each room, planted one at a time by tests/planted_faults.py."""

from tests.faults import front, metrics, models, panel, report, studies, tangents
from tests.faults.entry import Fault

ROOMS = metrics, models, panel, front, report, studies, tangents
FAULTS: list[Fault] = [fault for room in ROOMS for fault in room.FAULTS]
