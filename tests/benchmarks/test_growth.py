import numpy as np
import pytest

from benchmarks import growth


def test_a_fit_finds_the_terms_that_the_seconds_were_made_of():
    of_terms = np.array([2e-12, 3e-9, 4e-11, 0.0, 5e-10])
    seconds = growth.design(list(growth.SIZES)) @ of_terms
    found = growth.fit(list(growth.SIZES), list(seconds))
    np.testing.assert_allclose(found, of_terms, rtol=1e-6, atol=1e-14)
    assert growth.design([(16384, 1024)]) @ found == pytest.approx(growth.design([(16384, 1024)]) @ of_terms)
