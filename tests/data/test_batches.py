import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from anisoscope.training import step


def test_starts_cover_every_window_evenly():
    num_characters, length, draws = 10, 3, 8000
    starts = np.asarray(step.starts(0, 0, jnp.arange(draws), num_characters, length))
    counts = np.bincount(starts, minlength=8)
    assert counts.shape == (8,)  # 0 .. 7: the last window ends with the text
    spread = np.sqrt(draws * (1 / 8) * (7 / 8))
    assert np.abs(counts - draws / 8).max() < 4 * spread


def test_any_share_of_the_examples_draws_the_same_windows():
    examples_B = jnp.arange(16)
    whole = np.asarray(step.starts(5, 6, examples_B, 12_345, 32))
    for size in (1, 3, 8):
        shares = [
            step.starts(5, 6, examples_B[i : i + size], 12_345, 32) for i in range(0, 16, size)
        ]
        np.testing.assert_array_equal(np.concatenate(shares), whole)
    mesh = jax.make_mesh((8,), ("data",))
    over_devices = jax.device_put(examples_B, NamedSharding(mesh, PartitionSpec("data")))
    np.testing.assert_array_equal(step.starts(5, 6, over_devices, 12_345, 32), whole)


def test_crop_equals_a_loop_of_slices():
    corpus = np.random.default_rng(1).integers(0, 256, 300, dtype=np.uint8)
    starts = np.array([0, 17, 280, 3], np.int32)
    windows = step.crop(jnp.asarray(corpus), jnp.asarray(starts), 20)
    assert windows.dtype == jnp.int32
    np.testing.assert_array_equal(
        windows, np.stack([corpus[start : start + 20] for start in starts])
    )
