"""Float64 NumPy twins of metrics/logit_lens.py: one point and one layer at a time."""

import numpy as np
from scipy.special import log_softmax, rel_entr

from tests.reference import float64


def logits(x, unembedding, kind, scale, shift, epsilon, bias=0.0, cap=None):
    x = float64(x)
    if kind == "layer":
        x = (x - x.mean()) / np.sqrt(x.var() + epsilon)
    if kind == "rms":
        x = x / np.sqrt((x**2).mean() + epsilon)
    found = (x * scale + shift) @ float64(unembedding) + bias
    return found if cap is None else cap * np.tanh(found / cap)


def lens(clouds, target, *unembedding):
    """entropy, divergence, log probability, rank, settled: (N, P) each."""
    found = np.full((5, *clouds.shape[:2]), np.nan)
    for p, token in enumerate(target):
        every = [logits(cloud[p], *unembedding) for cloud in clouds]
        output = np.exp(log_softmax(every[-1]))
        answers = [int(one.argmax()) for one in every]
        for n, one in enumerate(every):
            log_p = log_softmax(one)
            found[0, n, p] = -(np.exp(log_p) * log_p).sum()
            found[1, n, p] = rel_entr(output, np.exp(log_p)).sum()
            if token >= 0:
                found[2, n, p] = log_p[token]
                found[3, n, p] = 1 + sum(log_p > log_p[token])
            found[4, n, p] = all(answer == answers[-1] for answer in answers[n:])
    return found


def alignment(cloud, unembedding, scale):
    count = min(10, np.shape(unembedding)[1] - 1)

    def leading(rows):
        return np.linalg.svd(rows - rows.mean(0), full_matrices=False)[2][:count]

    cosines = leading(float64(cloud)) @ leading(float64(unembedding).T * scale).T
    return (cosines**2).sum() / len(cosines)


def collapse(cloud, target):
    kept = np.asarray(target) >= 0
    x, classes = float64(cloud)[kept], np.asarray(target)[kept]
    within = sum(
        ((x[classes == one] - x[classes == one].mean(0)) ** 2).sum() for one in set(classes)
    )
    return 1 - within / (len(x) - len(set(classes))) / (((x - x.mean(0)) ** 2).sum() / (len(x) - 1))
