"""What changes with size? Decoder and encoder from 0.05M to 20M parameters with the same recipe.

The sizes are `:50k`, `:220k`, `:700k`, `:2m`, `:7m` and `:20m`.

AdamW, pre-LN and learned positions (`:50k,rotary` has rotary ones). All sizes read equally many
characters at one learning rate: 3,000 steps of 2,048 characters are 1.64 passes over the training
split of the first 4.15 MB of enwik8. Three seeds below a million parameters, one above; 20m takes
long without a GPU.

Questions written down before any of these runs was read. Each is about the last checkpoint over
parameters, separately for learned and rotary positions:

1. Does anisotropy grow more over training in larger decoders (`growth`)?
2. Does the bell rise with size, by either definition (`bell_blocks`, `bell_with_embedding`)? From
   which size on is it above 0.05? Do a massive vector (`largest_norm_ratio` above 10; 5 when
   this was written) and a sink
   (`largest_attention_first_token` above 0.3) form before it?
3. Do the growth of drift and of sharpness rise with size (`drift_growth`, `entropy_decrease`)?
4. Does the dimension (`expansion`, `compression`) move away from that of a Gaussian cloud of equal
   covariance?
5. Is a decoder's profile more uneven than that of the encoder of its size (`std_over_layers`), and
   does the difference rise with size? It counts where the encoder has gained 1 bit over unigrams.

Five sizes in order rise or fall by chance in 2 of 120 cases: only then is it a trend. Anything
else is described and not judged.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import CheckpointConfig, EvaluateConfig, TrainConfig
from anisoscope.config.variants import select_size_and_recipe
from anisoscope.experiments.matched_pair_small import MATCHED_PAIR
from anisoscope.utils.settings import replace

RECIPE = "gpt2"
SHAPES = {  # layers (and as many heads), and width
    "50k": (2, 40),
    "220k": (4, 64),
    "700k": (6, 96),
    "2m": (8, 144),
    "7m": (12, 216),
    "20m": (16, 320),
}
SEEDS = {"50k": 3, "220k": 3, "700k": 3}  # elsewhere one
MEASURE = MeasureConfig(
    points=1024,
    batches=2,
    families=("spectrum", "leading", "dimension", "similarity", "attention"),
    nulls=("gaussian",),
)


def get_config(size: str = "50k") -> Config:
    sizes = {name: rung_config(*shape, SEEDS.get(name, 1)) for name, shape in SHAPES.items()}
    return replace(select_size_and_recipe(size, sizes, RECIPE), {"variants": MATCHED_PAIR})


def rung_config(layers: int, width: int, seeds: int) -> Config:
    return Config(
        model=ModelConfig(layers=layers, width=width, heads=layers, context=128),
        train=TrainConfig(
            steps=3000, batch_size=16, learning_rate=2e-3, num_seeds=seeds, num_data_seeds=1
        ),
        evaluate=EvaluateConfig(every=250, windows=64, draws=4),
        checkpoint=CheckpointConfig(every=250),
        measure=MEASURE,
    )
