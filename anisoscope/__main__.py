"""python -m anisoscope: the same as the command anisoscope."""

from anisoscope.cli.process import start

if __name__ == "__main__":
    start()
