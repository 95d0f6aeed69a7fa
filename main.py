"""Train, measure and draw.

python main.py --config=experiments/decoder_small.py [--config.train.steps=100 …]
"""

from anisoscope.cli.process import main, start

__all__ = ["main", "start"]

if __name__ == "__main__":
    start()
