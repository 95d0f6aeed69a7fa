"""Completion for a shell: `source <(anisoscope --completion=bash)`; what is completed is read from the code."""

import dataclasses
import shlex
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from anisoscope.cli import explained, flags, options
from anisoscope.config.experiment import Config


class Word(NamedTuple):
    """A flag or a setting, without its dashes."""

    name: str
    meaning: str
    bare: bool = False  # it stands without a value
    values: tuple[str, ...] = ()  # that it may have, where they are few
    many: bool = False  # with commas between them


def words() -> list[Word]:
    """Flags, then the settings of all kinds of experiments."""
    given = options.defined()
    sizes = [(one.path.stem, size) for one in explained.entries() for size in one.cost or [""]]
    values = {
        "config": tuple(":".join(filter(None, pair)) for pair in sizes),
        "stages": (*options.STAGES, *options.FURTHER),
        "over": options.AXES,
        "help": (options.ALL, *explained.groups(Config())),
        "completion": options.SHELLS,
    }
    named = [
        Word(name, given[name].help, given[name].boolean or name == "help", values.get(name, ()), name == "stages")
        for name in options.names(given)
    ]
    known = {word.name: word for kind in reversed(flags.KINDS) for word in settings(kind())}
    return [*named, *(known[name] for name in sorted(known))]


def settings(config: Any, group: str = "config.") -> Iterator[Word]:
    meanings = explained.comments(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from settings(value, f"{group}{field.name}.")
        elif not isinstance(value, dict):  # runs of an experiment are set in its file
            choice = ("true", "false") if isinstance(value, bool) else ()
            yield Word(f"{group}{field.name}", meanings.get(field.name, ""), values=choice)


BASH = """\
_anisoscope() {{
    local line=${{COMP_LINE:0:COMP_POINT}} word words before=""
    word=${{line##*[[:space:]]}}
    case $word in
{cases}
        --*=*) return ;;
        --config.*) words="{settings}" ;;
        *) words="{flags} --config." ;;
    esac
    if [[ $word == *=* ]]; then before=${{word%"${{word##*[=,]}}"}}; fi
    COMPREPLY=($(compgen -P "$before" -W "$words" -- "${{word#"$before"}}"))
    if [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} != *[=.,]* ]]; then COMPREPLY[0]+=" "; fi
    COMPREPLY=("${{COMPREPLY[@]#"${{word%"$2"}}"}}")  # bash takes = and : for the ends of words
}}
complete -o default -o nospace -F _anisoscope anisoscope"""


def bash(known: list[Word]) -> str:
    having: dict[tuple[str, ...], list[str]] = {}
    for word in known:
        having.setdefault(word.values, []).append(f"--{word.name}=*")
    cases = [f'        {"|".join(names)}) words="{" ".join(values)}" ;;' for values, names in having.items() if values]
    shown = [f"--{word.name}{'' if word.bare else '='}" for word in known]
    of_settings = [word for word in shown if word.startswith("--config.")]
    return BASH.format(
        cases="\n".join(cases),
        settings=" ".join(of_settings),
        flags=" ".join(word for word in shown if word not in of_settings),
    )


def zsh(known: list[Word]) -> str:
    def spec(word: Word) -> str:
        meaning = word.meaning.replace("[", "(").replace("]", ")").replace(":", "\\:")
        values = " ".join(word.values).replace(":", "\\:")
        action = f"_values -s , {word.name} {values}" if word.many else f"({values})" if values else "_files"
        if word.bare and not values:
            return shlex.quote(f"--{word.name}[{meaning}]")
        return shlex.quote(f"--{word.name}={'-' * word.bare}[{meaning}]:{word.name.replace(':', ' ')}:{action}")

    specs = " \\\n".join(f"        {spec(word)}" for word in known)
    return f"#compdef anisoscope\n_anisoscope() {{\n    _arguments \\\n{specs}\n}}\ncompdef _anisoscope anisoscope"


def fish(known: list[Word]) -> str:
    def line(word: Word) -> str:
        listed = " ".join(word.values)
        action = f"(__fish_append , {listed})" if word.many else listed
        value = f" -xa {shlex.quote(action)}" if listed else "" if word.bare else " -r"
        return f"complete -c anisoscope -l {word.name}{value} -d {shlex.quote(word.meaning)}"

    return "\n".join(["complete -c anisoscope -f", *map(line, known)])


SCRIPTS: dict[str, Callable[[list[Word]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def script(shell: str) -> str:
    return SCRIPTS[shell](words())
