"""Clouds whose dimension and covariance are known: what estimators and their intervals are held
against.

    cloud_PD = ZOO["sphere 9 in 64"].draw(np.random.default_rng(0), points)

A draw is a function of the generator and the number of points; frames and means are the same for
all draws of a member, so that two draws are two samples of one distribution. Clouds are float32,
except the one in bfloat16.
"""

import dataclasses
from collections.abc import Callable

import ml_dtypes
import numpy as np

WINDOW = 16  # neighboring points that depend on one another, in the member of windows
COPIED = 0.2  # share of points that are copies, or lie on atoms, in the members of duplicates

Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Member:
    draw: Draw  # (generator, points) -> cloud_PD
    dimension: float | None  # of the support, at the scale that the words name
    # of the population's covariance, one per coordinate, largest first
    eigenvalues: np.ndarray | None


def frame(rank: int, width: int) -> np.ndarray:
    """Orthonormal rows, always the same: `rank` directions of a space of `width`."""
    normal_DK = np.random.default_rng(width).normal(size=(width, rank))
    return np.linalg.qr(normal_DK)[0].T


def gaussian(
    eigenvalues_K: np.ndarray, width: int, mean_over_spread: float = 0.0, rogue: float = 1.0
) -> Member:
    """Normal points of the given spectrum in general position; one coordinate may be stretched, the
    mean moved.
    """
    factor_KD = np.sqrt(eigenvalues_K)[:, None] * frame(len(eigenvalues_K), width)
    factor_KD[:, 5 % width] *= rogue
    spread = np.sqrt(np.square(factor_KD).sum())
    mean_D = mean_over_spread * spread * np.ones(width) / np.sqrt(width)

    def draw(generator: np.random.Generator, points: int) -> np.ndarray:
        normal_PK = generator.normal(size=(points, len(factor_KD)))
        return (normal_PK @ factor_KD + mean_D).astype(np.float32)

    eigenvalues_K = np.linalg.svd(factor_KD)[1] ** 2
    return Member(draw, float(len(factor_KD)), padded(eigenvalues_K, width))


def sphere(dimension: int, width: int) -> Member:
    frame_KD = frame(dimension + 1, width)

    def draw(generator: np.random.Generator, points: int) -> np.ndarray:
        normal_PK = generator.normal(size=(points, dimension + 1))
        unit_PK = normal_PK / np.linalg.norm(normal_PK, axis=1, keepdims=True)
        return (unit_PK @ frame_KD).astype(np.float32)

    eigenvalues_K = np.full(dimension + 1, 1 / (dimension + 1))
    return Member(draw, float(dimension), padded(eigenvalues_K, width))


def swiss_roll(width: int) -> Member:
    """A rolled rectangle: angle uniform between 1.5 pi and 4.5 pi, height uniform between 0 and
    21.
    """
    frame_KD = frame(3, width)
    low, high, height = 1.5 * np.pi, 4.5 * np.pi, 21.0

    def rolled(angle_P: np.ndarray) -> np.ndarray:
        return np.stack([angle_P * np.cos(angle_P), angle_P * np.sin(angle_P)], axis=1)

    def draw(generator: np.random.Generator, points: int) -> np.ndarray:
        roll_P2 = rolled(generator.uniform(low, high, points))
        roll_P3 = np.column_stack([roll_P2, generator.uniform(0, height, points)])
        return (roll_P3 @ frame_KD).astype(np.float32)

    # integrates the roll's covariance
    midpoints_Q = low + (high - low) * (np.arange(100_000) + 0.5) / 100_000
    eigenvalues_K = [*np.linalg.eigvalsh(np.cov(rolled(midpoints_Q).T, bias=True)), height**2 / 12]
    return Member(draw, 2.0, padded(np.sort(eigenvalues_K)[::-1], width))


def torus(dimension: int, width: int, noise: float) -> Member:
    """Uniform angles; of each the cosine and sine, and those of 2, 3 and 4 times the angle, smaller
    by the square.
    """
    orders_M = np.arange(1, 5)
    amplitude_KM = np.repeat((1.0 / orders_M**2)[None], dimension, axis=0)
    amplitude_L = np.concatenate([amplitude_KM.ravel(), amplitude_KM.ravel()])
    frame_LD = frame(len(amplitude_L), width)

    def draw(generator: np.random.Generator, points: int) -> np.ndarray:
        turn_PKM = generator.uniform(0, 2 * np.pi, (points, dimension, 1)) * orders_M
        wave_PL = np.concatenate([np.cos(turn_PKM), np.sin(turn_PKM)], axis=1).reshape(points, -1)
        cloud_PD = (wave_PL * amplitude_L) @ frame_LD
        if noise:
            cloud_PD += noise * generator.normal(size=cloud_PD.shape)
        return cloud_PD.astype(np.float32)

    eigenvalues_L = np.sort(amplitude_L**2 / 2)[::-1]
    return Member(draw, float(dimension), padded(eigenvalues_L, width) + noise**2)


def with_copies(base: Member) -> Member:
    """The last fifth of the points drawn are overwritten by copies of others, and all are
    shuffled.
    """

    def draw(generator: np.random.Generator, points: int) -> np.ndarray:
        copies = round(COPIED * points)
        cloud_PD = base.draw(generator, points - copies)
        copied_PD = cloud_PD[generator.integers(0, points - copies, copies)]
        return generator.permutation(np.concatenate([cloud_PD, copied_PD]))

    return dataclasses.replace(base, draw=draw)


def with_atoms(dimension: int, width: int) -> Member:
    """Isotropic normal points, of which a share falls on +- sqrt(dimension) along each axis: the
    same covariance.
    """
    frame_KD = frame(dimension, width)
    atom_AD = np.sqrt(dimension) * np.concatenate([frame_KD, -frame_KD])

    def draw(generator: np.random.Generator, points: int) -> np.ndarray:
        cloud_PD = generator.normal(size=(points, dimension)) @ frame_KD
        on_atom_P = generator.random(points) < COPIED
        cloud_PD[on_atom_P] = generator.choice(atom_AD, on_atom_P.sum())
        return cloud_PD.astype(np.float32)

    return Member(draw, float(dimension), padded(np.ones(dimension), width))


def in_bfloat16(base: Member) -> Member:
    def draw(generator: np.random.Generator, points: int) -> np.ndarray:
        return base.draw(generator, points).astype(ml_dtypes.bfloat16)

    return dataclasses.replace(base, draw=draw)


def in_windows(base: Member, share: float = 0.5) -> Member:
    """Of every `WINDOW` consecutive points the mean varies: a share of the variance is common to
    the window.
    """

    def draw(generator: np.random.Generator, points: int) -> np.ndarray:
        common_WD = base.draw(generator, -(-points // WINDOW))
        common_PD = np.repeat(common_WD, WINDOW, axis=0)[:points]
        own_PD = base.draw(generator, points)
        return (np.sqrt(share) * common_PD + np.sqrt(1 - share) * own_PD).astype(np.float32)

    return dataclasses.replace(base, draw=draw)


def padded(eigenvalues_K: np.ndarray, width: int) -> np.ndarray:
    """A spectrum with a value for every coordinate: zeros for those directions that do not vary."""
    return np.concatenate([eigenvalues_K, np.zeros(width - len(eigenvalues_K))])


ISOTROPIC = gaussian(np.ones(8), 64)

ZOO = {
    "gaussian 8 in 64": ISOTROPIC,
    "power law in 64": gaussian(1.0 / np.arange(1, 65), 64),
    "sphere 2 in 64": sphere(2, 64),
    "sphere 9 in 64": sphere(9, 64),
    "swiss roll in 512": swiss_roll(512),
    "curved 5 in 512": torus(5, 512, 0.0),
    "curved 5 with noise": torus(5, 512, 1e-3),
    "mean 10 spreads": gaussian(np.ones(8), 64, 10.0),
    "mean 1000 spreads": gaussian(np.ones(8), 64, 1000.0),
    "rogue coordinate": gaussian(np.ones(8), 64, rogue=100.0),
    "20 % copies": with_copies(ISOTROPIC),
    "20 % on atoms": with_atoms(8, 64),
    "bfloat16": in_bfloat16(ISOTROPIC),
    "dependent windows": in_windows(ISOTROPIC),
}
