"""A Transformer in NumPy float64, one window at a time, written from the published architectures.

GPT-2 (Radford et al. 2019): pre-LN blocks, learned positions, exact GELU, tied head. BERT (Devlin et al. 2018):
LayerNorm after each residual sum. Rotary positions: Su et al. 2021, in the half-split form of GPT-NeoX. Attention is
one loop over the queries, each with the list of the keys it sees.
"""

import math

import numpy as np

from anisoscope.models.masks import visible_keys

erf = np.vectorize(math.erf)


def layer_norm(x_TD, params, epsilon=1e-5):
    centered_TD = x_TD - x_TD.mean(-1, keepdims=True)
    normal_TD = centered_TD / np.sqrt((centered_TD**2).mean(-1, keepdims=True) + epsilon)
    return normal_TD * params["scale"] + params.get("bias", 0.0)


def linear(x_TD, params):
    return x_TD @ params["kernel"] + params.get("bias", 0.0)


def rotate(x_TK):
    """Each pair (i, i + K/2) is a complex number, turned by t·10000^(-2i/K)."""
    time, width = x_TK.shape
    half = width // 2
    turn_TK = np.exp(1j * np.outer(np.arange(time), 10000.0 ** (-2 * np.arange(half) / width)))
    turned_TK = (x_TK[:, :half] + 1j * x_TK[:, half:]) * turn_TK
    return np.concatenate([turned_TK.real, turned_TK.imag], axis=1)


def seen(query, time, config):
    """List the keys this query sees. Which pairs leak is tested in test_masks.py."""
    if config.mask == "bidirectional":
        return list(range(time))
    if config.mask == "leak":
        return list(np.flatnonzero(visible_keys(config, time)[query]))
    past = range(query + 1)
    if config.mask == "prefix":
        return sorted({*past, *range(min(config.prefix, time))})
    return list(past)[-config.window :] if config.mask == "window" else list(past)


def mix(q_K, k_SK, v_SK, sink, config):
    """What one query gets from the keys it sees; a sink is one more key and value."""
    if sink is not None:
        v_SK = np.concatenate([v_SK, sink["value"][None]])
    scores_S = k_SK @ q_K / math.sqrt(len(q_K))
    if sink is not None:
        scores_S = np.append(scores_S, sink["score"])
    if config.attention == "sigmoid":
        return 1 / (1 + config.context * np.exp(-scores_S)) @ v_SK
    one = 1.0 if config.attention == "softmax_one" else 0.0
    return np.exp(scores_S) @ v_SK / (np.exp(scores_S).sum() + one)


def attention(x_TD, block, config):
    width, time = config.width // config.heads, len(x_TD)
    query_TD, key_TD, value_TD = np.split(linear(x_TD, block["qkv"]), 3, axis=1)
    mixed, queries, keys = [], [], []
    for head in range(config.heads):
        part = slice(head * width, (head + 1) * width)
        q_TK, k_TK, v_TK = query_TD[:, part], key_TD[:, part], value_TD[:, part]
        if config.qk_norm:
            q_TK, k_TK = layer_norm(q_TK, block["norm_query"]), layer_norm(k_TK, block["norm_key"])
        if config.center_queries:
            q_TK = np.stack(
                [
                    q_TK[i] - np.mean([q_TK[j] for j in seen(i, time, config)], axis=0)
                    for i in range(time)
                ]
            )
        sinks = [None] * time
        if config.sink:
            score_T = q_TK @ block["sink"]["key"][head] / math.sqrt(width)
            sinks = [{"score": score, "value": block["sink"]["value"][head]} for score in score_T]
        if config.position_encoding == "rotary":
            q_TK, k_TK = rotate(q_TK), rotate(k_TK)
        rows = (seen(i, time, config) for i in range(time))
        mixed.append(
            [mix(q_TK[i], k_TK[row], v_TK[row], sinks[i], config) for i, row in enumerate(rows)]
        )
        queries.append(q_TK)
        keys.append(k_TK)
    mixed_TD = np.concatenate(mixed, axis=1)
    return linear(mixed_TD, block["attention_out"]), np.stack(queries, 1), np.stack(keys, 1)


def mlp(x_TD, block):
    hidden_TF = linear(x_TD, block["mlp_up"])
    return linear(hidden_TF * (1 + erf(hidden_TF / math.sqrt(2))) / 2, block["mlp_down"])


def block_of(x_TD, block, config, epsilon=1e-5):
    """The block's output, and its queries and keys."""
    if config.norm == "pre":
        out_TD, *vectors = attention(
            layer_norm(x_TD, block["norm_attention"], epsilon), block, config
        )
        x_TD = x_TD + out_TD
        return x_TD + mlp(layer_norm(x_TD, block["norm_mlp"], epsilon), block), *vectors
    out_TD, *vectors = attention(x_TD, block, config)
    x_TD = layer_norm(x_TD + out_TD, block["norm_attention"], epsilon)
    return layer_norm(x_TD + mlp(x_TD, block), block["norm_mlp"], epsilon), *vectors


def forward(params, tokens_T, config, taps_NTD=None):
    """Logits (T, V), residual stream (N+1, T, D), queries and keys (N, T, H, K)."""
    x_TD = params["tokens"][tokens_T]
    if config.position_encoding == "learned":
        x_TD = x_TD + params["positions"][: len(tokens_T)]
    if taps_NTD is not None:
        x_TD = x_TD + taps_NTD[0]
    residual, queries, keys = [x_TD], [], []
    for layer in range(config.layers):
        block = {
            name: {leaf: value[layer] for leaf, value in group.items()}
            for name, group in params["blocks"].items()
        }
        x_TD, q_THK, k_THK = block_of(x_TD, block, config)
        if taps_NTD is not None:
            x_TD = x_TD + taps_NTD[layer + 1]
        residual.append(x_TD)
        queries.append(q_THK)
        keys.append(k_THK)
    if config.norm == "pre":
        x_TD = layer_norm(x_TD, params["norm_final"])
    head_DV = params["tokens"].T if config.tied else params["head"]
    return x_TD @ head_DV, np.stack(residual), np.stack(queries), np.stack(keys)
