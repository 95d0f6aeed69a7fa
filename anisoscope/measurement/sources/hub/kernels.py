"""Which modules of a block multiply by a matrix that meets the residual stream, by kind of block."""

from typing import NamedTuple


class Kernels(NamedTuple):
    """Paths below a block: what reads the residual stream, and what writes to it."""

    attention: tuple[str, ...]  # into queries, keys and values
    mlp: tuple[str, ...]  # into hidden units, and into gates where there are some
    attention_out: str
    mlp_out: str


def _apart(path: str) -> tuple[str, ...]:
    """A matrix each for queries, keys and values."""
    return tuple(path.format(name) for name in "qkv")


def _fused(attention: str) -> Kernels:
    """One matrix for all three, and the names of Megatron."""
    inner, outer = "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"
    return Kernels((f"{attention}.query_key_value",), (inner,), f"{attention}.dense", outer)


SPLIT = _apart("self_attn.{}_proj")
OF_BERT = tuple(f"attention.self.{name}" for name in ("query", "key", "value"))

BERT = Kernels(OF_BERT, ("intermediate.dense",), "attention.output.dense", "output.dense")
BLOOM = _fused("self_attention")
DEBERTA = Kernels(("attention.self.in_proj",), ("intermediate.dense",), "attention.output.dense", "output.dense")
DEBERTA_V2 = DEBERTA._replace(attention=tuple(f"attention.self.{name}_proj" for name in ("query", "key", "value")))
DISTILBERT = Kernels(_apart("attention.{}_lin"), ("ffn.lin1",), "attention.out_lin", "ffn.lin2")
GATED = Kernels(SPLIT, ("mlp.gate_proj", "mlp.up_proj"), "self_attn.o_proj", "mlp.down_proj")
GPT2 = Kernels(("attn.c_attn",), ("mlp.c_fc",), "attn.c_proj", "mlp.c_proj")
GPTJ = Kernels(_apart("attn.{}_proj"), ("mlp.fc_in",), "attn.out_proj", "mlp.fc_out")
GPT_NEO = Kernels(_apart("attn.attention.{}_proj"), ("mlp.c_fc",), "attn.attention.out_proj", "mlp.c_proj")
GPT_NEOX = _fused("attention")
MODERNBERT = Kernels(("attn.Wqkv",), ("mlp.Wi",), "attn.Wo", "mlp.Wo")
MPNET = Kernels(_apart("attention.attn.{}"), ("intermediate.dense",), "attention.attn.o", "output.dense")
OPT = Kernels(SPLIT, ("fc1",), "self_attn.out_proj", "fc2")
CLIP = Kernels(SPLIT, ("mlp.fc1",), "self_attn.out_proj", "mlp.fc2")
PHI = Kernels(SPLIT, ("mlp.fc1",), "self_attn.dense", "mlp.fc2")
PHI3 = Kernels(("self_attn.qkv_proj",), ("mlp.gate_up_proj",), "self_attn.o_proj", "mlp.down_proj")
STARCODER2 = Kernels(SPLIT, ("mlp.c_fc",), "self_attn.o_proj", "mlp.c_proj")
