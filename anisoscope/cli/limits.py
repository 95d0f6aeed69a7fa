"""Whether a single run can be trained, measured and read for tangents: each room knows its own limits."""

from anisoscope.config import measure
from anisoscope.config.experiment import Config
from anisoscope.tangents import limits as tangents
from anisoscope.training import limits as training


def check_experiment(config: Config) -> None:
    """Raise UserError, one line, where it cannot be."""
    training.check_run(config)
    measure.check_measure(config.measure, config.model.heads)
    tangents.check(config, config.tangents)
