from anisoscope.cli import flags
from anisoscope.utils.settings import settings


def test_every_setting_says_what_it_means():
    for kind in flags.KINDS:
        for setting in settings(kind()):
            assert setting.metadata["help"], f"{kind.__name__}.{setting.name}"
