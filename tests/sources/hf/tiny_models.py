"""Models of every architecture, small and random; and one that is trained for a second."""

import string

import numpy as np
import tokenizers
import torch
import transformers

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, WeightsConfig
from anisoscope.sources.evaluation_windows import POSITION_SETS, make_probe
from anisoscope.sources.hf import load_model, pretrained_weights
from anisoscope.sources.hf.adapters import find_adapter
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.token_windows import InputWindows, cut_token_windows
from tests.program import here

SMALL = ("--config.window=16", "--config.measure.points=64", "--config.measure.batches=2")
FAMILIES = ("spectrum", "leading", "comparison", "attention")
LETTERS = string.ascii_lowercase + " .\n"
SPECIAL = ("<unk>", "<s>", "</s>", "<mask>")
VOCABULARY = len(SPECIAL) + len(LETTERS)
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "vocab_size": VOCABULARY, "max_position_embeddings": 64,
}  # fmt: skip
MODELS = {
    "albert": ("AlbertForMaskedLM", SIZES | {"embedding_size": 16, "initializer_range": 0.2}),
    "bert": ("BertModel", SIZES | {"initializer_range": 0.2}),
    "gpt2": (
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 64},
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", SIZES | {"initializer_range": 0.2}),
    "llama": ("LlamaForCausalLM", SIZES | {"num_key_value_heads": 2, "initializer_range": 0.2}),
    "opt": ("OPTForCausalLM", SIZES | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "qwen2": ("Qwen2ForCausalLM", SIZES | {"num_key_value_heads": 2}),
}


def model(kind, **changes):
    torch.manual_seed(0)
    name, settings = MODELS[kind]
    made = getattr(transformers, name)
    return made(made.config_class(**settings | changes)).eval()


def loaded(kind, **changes):
    return as_loaded(model(kind, **changes), find_adapter(kind))


def load(name, revision=None):
    """Load the model of a hub, a folder or a GGUF file."""
    location = pretrained_weights.find_weights(str(name), revision)
    return load_model.load_model(location, WeightsConfig(name=str(name)))


def as_loaded(made, adapter, computed_in="float32"):
    return PretrainedModel(
        made, adapter, {"computed_in": computed_in, "model_class": type(made).__name__}
    )


def tokens(windows=4, length=12):
    return (
        np.random.default_rng(0)
        .integers(len(SPECIAL), VOCABULARY, (windows, length))
        .astype(np.int32)
    )


def tokenizer(letters=LETTERS, framed=False):
    """A letter is a token."""
    ids = {token: i for i, token in enumerate((*SPECIAL, *letters))}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, "<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    if framed:
        pairs = [(token, ids[token]) for token in ("<s>", "</s>")]
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=pairs
        )
    names = dict(zip(("unk_token", "bos_token", "eos_token", "mask_token"), SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def save(made, folder, spelled=None):
    """A model with its tokenizer, as a folder."""
    made.save_pretrained(folder)
    (spelled or tokenizer()).save_pretrained(folder)
    return folder


def run(*flags):
    """The program, in this process, which ends well."""
    process = here(*flags)
    assert process.returncode == 0, process.stderr
    return process


def flags(training, *revisions, name=None, families=None):
    """What measures checkpoints of a training, or another model, on its text."""
    given = f"--config=experiments/pretrained.py:{name or training}"
    named = (f"--config.pretrained.revisions={revisions}",) if revisions else ()
    families = f"--config.measure.families={families or ','.join(FAMILIES)}"
    return given, f"--config.data.path={training / 'text.txt'}", *named, *SMALL, families


def measure(training, workdir, *revisions, stages="measure", **options):
    given = flags(training, *revisions, **options)
    return here(*given, f"--workdir={workdir}", f"--stages={stages}")


def windows(spelled=None, written=None, special=False, tokens_per_position=1):
    measure = MeasureConfig(points=64, batches=1, folds=2)
    config = PretrainedConfig(measure=measure, window=24, special_tokens=special)
    return cut_token_windows(
        written or text(6000), spelled or tokenizer(), config, tokens_per_position
    )


def as_windows(tokens_WT):
    """Windows of these tokens only, without special tokens."""
    found = make_probe(tokens_WT.ravel(), tokens_WT.shape[1], 64, 1, 2, 0)
    found = found._replace(tokens_GWT=tokens_WT[None], shuffled_GWT=tokens_WT[None])
    return InputWindows(
        found, POSITION_SETS, np.zeros(tokens_WT.shape[1], bool), tokens_WT.shape[1], {}
    )


def text(letters=40_000):
    """Letters of which the next is mostly the one after in the alphabet, with words and lines."""
    rng = np.random.default_rng(0)
    places = np.cumsum(rng.choice([1, 1, 1, 2], letters)) % 26
    found = np.array(list(string.ascii_lowercase))[places]
    found[rng.random(letters) < 0.1] = " "
    return "".join(found)


def train(folder, kept=(0, 4, 8, 20, 60)):
    """Checkpoints of a Llama that learns the text, each a folder."""
    made, spelled = model("llama"), tokenizer()
    (folder / "text.txt").write_text(text())
    ids = torch.tensor(spelled(text(), add_special_tokens=False)["input_ids"])
    optimizer = torch.optim.Adam(made.parameters(), 1e-2)
    for step in range(max(kept) + 1):
        if step in kept:
            save(made, folder / f"step{step}", spelled)
        batch = torch.stack(
            [ids[start : start + 24] for start in torch.randint(0, 30_000, (16,)).tolist()]
        )
        optimizer.zero_grad()
        made(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
