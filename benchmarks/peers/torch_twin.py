"""The default model and its training step in PyTorch.

It has pre-LN GPT-2 blocks, learned positions, exact GELU and a tied head.
"""

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 the name that PyTorch gives it
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp_up, self.mlp_down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BTD):
        batch, time, width = x_BTD.shape
        qkv = self.qkv(self.norm_attention(x_BTD)).view(
            batch, time, 3, self.heads, width // self.heads
        )
        q_BHTK, k_BHTK, v_BHTK = qkv.permute(2, 0, 3, 1, 4)
        mixed_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        x_BTD = x_BTD + self.attention_out(mixed_BHTK.transpose(1, 2).reshape(x_BTD.shape))
        return x_BTD + self.mlp_down(F.gelu(self.mlp_up(self.norm_mlp(x_BTD))))


class Transformer(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, context: int, vocab: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm_final = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens_BT):
        x_BTD = self.tokens(tokens_BT) + self.positions.weight[: tokens_BT.shape[1]]
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return F.linear(self.norm_final(x_BTD), self.tokens.weight)


def make_step(
    model: nn.Module,
    corpus_N: torch.Tensor,
    batch: int,
    context: int,
    bfloat16: bool,
    rate: Callable[[int], float] = lambda at: 1e-3,
):
    """Make a function that trains `model` in place on random windows and returns the loss.

    `batch` is the number of windows. `rate` gives the learning rate of each update, counted from 0.
    """
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    count = itertools.count()
    device, offsets_L = corpus_N.device, torch.arange(context + 1, device=corpus_N.device)

    def step():
        starts_B = torch.randint(len(corpus_N) - context, (batch, 1), device=device)
        windows_BL = corpus_N[starts_B + offsets_L].long()
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            logits_BTV = model(windows_BL[:, :-1])
        loss = F.cross_entropy(logits_BTV.flatten(0, 1).float(), windows_BL[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        learning_rate = rate(next(count))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
        return loss.detach()

    return step
