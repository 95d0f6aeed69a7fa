"""What a shell completes: bash is run, as it calls the function of a command."""

import subprocess

import pytest

from anisoscope.cli import completion, options
from anisoscope.utils.errors import UserError

CASES = {
    "--sta": "--stages=|--status=",
    "--dry": "--dry_run ",
    "--config": "--config=|--config.",
    "--config=curved": "curved_manifolds|curved_manifolds:tiny",
    "--config=decoder_small:t": "tiny",
    "--config.train.learning_r": "--config.train.learning_rate=",
    "--config.model.tied=": "true|false",
    "--stages=train,mea": "train,measure",
    "--workdir=ru": "",  # bash's own completion of files follows
}
CALL = """
complete_one() {
    COMP_LINE="anisoscope --list $1" COMP_POINT=${#COMP_LINE} COMPREPLY=()
    _anisoscope anisoscope "${1##*[=:]}"
    (IFS="|"; echo "${COMPREPLY[*]}")
}
"""


def test_bash_completes_flags_experiments_stages_and_settings():
    calls = "\n".join(f"complete_one {word}" for word in CASES)
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{completion.script('bash')}\n{CALL}\n{calls}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert dict(zip(CASES, done.stdout.splitlines(), strict=True)) == CASES


def test_every_shell_has_every_flag():
    with pytest.raises(UserError, match=r"^--completion: 'bsh' is unknown; choose from bash, zsh, fish; did you mean"):
        options.parse(["main.py", "--completion=bsh"])
    for shell in options.SHELLS:
        text = completion.script(options.parse(["main.py", f"--completion={shell}"]).completion)
        for word in completion.words():
            assert f"-l {word.name} " in text if shell == "fish" else f"--{word.name}" in text
