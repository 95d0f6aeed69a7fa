"""Sample activations while a user's own loop runs, and measure them step by step."""
