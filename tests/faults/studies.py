"""Faults in contrasts that were named beforehand, and in what they are read from."""

from tests.faults.entry import Fault

FAULTS = [
    Fault(
        "the margin lies outside", "studies/primary.py", "margin - abs(change.change)", "margin + abs(change.change)"
    ),
    Fault("one-sided p of no change", "studies/primary.py", '"p": 2 * stats.t.sf', '"p": stats.t.sf'),
    Fault("no correction", "studies/primary.py", "np.minimum(np.arange(len(p), 0, -1), at_once)", "np.ones(len(p))"),
    Fault("what has no p comes first", "studies/primary.py", "np.isnan(p), 1.0, p)", "np.isnan(p), 0.0, p)"),
    Fault("p of crossed seeds", "studies/primary.py", "if crossed or not change.freedom", "if not change.freedom"),
    Fault("not turned round", "studies/primary.py", "change=-found.change, low", "change=found.change, low"),
    Fault("equal gain is the last checkpoint", "studies/primary.py", '== "last" else _at', '!= "" else _at'),
    Fault(
        "an optimizer's rate is another setting",
        "studies/contrasts.py",
        "settings = [name for name in settings if name not in own]",
        "settings = [name for name in settings if name != own[0]]",
    ),
    Fault("levels on a plain scale", "studies/shapes.py", "_log_ratio(_last(v), xr.ones_like(_last(v)))", "_last(v)"),
]
