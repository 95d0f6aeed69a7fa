"""Read activations of pretrained models, and check them."""
