"""Recordings for tests: a wav file of a tone with noise."""

import numpy as np
from scipy.io import wavfile


def wav(path, dtype="int16", rate=16_000, seconds=2.0, channels=1, tone=440.0, seed=0):
    """A tone with noise, of an amplitude below 1."""
    time = np.arange(int(rate * seconds)) / rate
    noise = np.random.default_rng(seed).normal(0, 0.05, time.size)
    wave = 0.5 * np.sin(2 * np.pi * tone * time) + noise
    scaled = {
        "int16": wave * 32767,
        "int32": wave * (2**31 - 1),
        "uint8": 128 + wave * 127,
        "float32": wave,
    }[dtype]
    wavfile.write(path, rate, np.repeat(scaled[:, None], channels, axis=1).astype(dtype))
    return wave
