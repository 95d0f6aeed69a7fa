"""Faults in models and training."""

from tests.faults.entry import Fault

FAULTS = [
    Fault(
        "rotary positions turn one part the other way",
        "models/positions.py",
        "low * cos - high * sin",
        "low * cos + high * sin",
    ),
    Fault(
        "a window is one key too wide",
        "models/masks.py",
        "1 - config.window)",
        "-config.window)",
    ),
    Fault(
        "a prefix is one key too long",
        "models/masks.py",
        "(jnp.arange(time) < config.prefix)",
        "(jnp.arange(time) <= config.prefix)",
    ),
    Fault(
        "a prefix is said to hide one target more",
        "models/masks.py",
        "config.context + 1 - config.prefix",
        "config.context + 2 - config.prefix",
    ),
    Fault(
        "the seed of a leak is lost",
        "models/masks.py",
        "default_rng(config.leak_seed)",
        "default_rng(0)",
    ),
    Fault(
        "the mask is dropped",
        "models/attention.py",
        "if visible_TT is not None:",
        "if False:",
    ),
    Fault(
        "weights with their axes swapped",
        "models/attention.py",
        '"bhts,bhsk->bhtk"',
        '"bhst,bhsk->bhtk"',
    ),
    Fault(
        "the sigmoid's constant with the other sign",
        "models/attention.py",
        "scores_BHTT - math.log(context)",
        "scores_BHTT + math.log(context)",
    ),
    Fault(
        "the sink's share the other way round",
        "models/attention.py",
        "jax.nn.sigmoid(sink.score_BHT - jax.nn.logsumexp(scores_BHTT, axis=-1))",
        "jax.nn.sigmoid(jax.nn.logsumexp(scores_BHTT, axis=-1) - sink.score_BHT)",
    ),
    Fault(
        "post-LN leaves the residual sum out of the norm",
        "models/norms.py",
        "return norm(x_BTD + out_BTD), *rest",
        "return x_BTD + norm(out_BTD), *rest",
    ),
    Fault(
        "projections into the residual start as large as others",
        "models/transformer.py",
        "normal(0.02 / (2 * config.layers) ** 0.5)",
        "normal(0.02)",
    ),
    Fault(
        "a single block has GPT-2's epsilon",
        "models/block.py",
        "kernel_init, kernel_init, EPSILON)",
        "kernel_init, kernel_init)",
    ),
    Fault(
        "the next character is this one",
        "training/objective.py",
        "return Batch(windows_BL[:, :-1], windows_BL[:, 1:], weights_BT)",
        "return Batch(windows_BL[:, :-1], windows_BL[:, :-1], weights_BT)",
    ),
    Fault(
        "masks are the same at every step",
        "training/step.py",
        "key = jax.random.fold_in(masks, step)",
        "key = masks",
    ),
    Fault(
        "the learning rate is one step late",
        "training/optimizer.py",
        "rate(count + 1)",
        "rate(count)",
    ),
    Fault(
        "gradients are not clipped",
        "training/optimizer.py",
        "return optax.chain(clip, ",
        "return optax.chain(optax.identity(), ",
    ),
    Fault(
        "everything decays",
        "training/optimizer.py",
        'return path[-1].key not in ("bias", "scale")',
        "return True",
    ),
    Fault(
        "the digest of the optimizer's state is lost",
        "training/checkpoint.py",
        'custom_metadata={"sha256": digests(items)}',
        'custom_metadata={"sha256": digests({"params": params})}',
    ),
    Fault(
        "a member begins with its data seed",
        "training/program.py",
        "for seed in weights])",
        "for seed in data])",
    ),
    Fault(
        "the penalty has the other sign",
        "training/step.py",
        "return nats + penalty, (nats, penalty)",
        "return nats - penalty, (nats, penalty)",
    ),
    Fault(
        "Muon decays matrices at its own rate",
        "training/optimizer.py",
        "weight_decay=REST * config.weight_decay",
        "weight_decay=config.weight_decay",
    ),
    Fault(
        "Muon orthogonalises the table of embeddings too",
        "training/optimizer.py",
        'return "muon" if path[0].key == "blocks" and is_matrix(path, leaf) else "adamw"',
        'return "muon" if is_matrix(path, leaf) and leaf.ndim > 1 else "adamw"',
    ),
    Fault(
        "a constant schedule decays from the beginning",
        "training/optimizer.py",
        "[max(warmup, 1), max(config.steps - decay, warmup, 1)]",
        "[max(warmup, 1), max(warmup, 1)]",
    ),
]
