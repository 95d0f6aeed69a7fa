import os
import signal

import pytest

from anisoscope.utils.errors import Stopped
from anisoscope.utils.stop import Stop


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_is_as_before(signum, capfd):
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with Stop() as stop:
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] != before
    # the work is done
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    with Stop() as stop:
        stop.check("not yet")
        os.kill(os.getpid(), signum)
        assert stop.requested
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
        with pytest.raises(Stopped, match="at step 3"):
            stop.check("at step 3")
    assert "press again to interrupt" in capfd.readouterr().err
