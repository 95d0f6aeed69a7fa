"""Faults that the suite must notice: one list for each room, planted one at a time by tests/planted_faults.py."""

from tests.faults import front, metrics, models, panel, report, tangents
from tests.faults.entry import Fault

FAULTS: list[Fault] = [*metrics.FAULTS, *models.FAULTS, *panel.FAULTS, *front.FAULTS, *report.FAULTS, *tangents.FAULTS]
