"""The stage `verify`: what of an experiment's folders is whole, and with --repair how the rest comes back."""

import contextlib
import os
import pathlib
from typing import NamedTuple

from anisoscope.cli import archive
from anisoscope.cli.archive import Report
from anisoscope.config.experiment import Config
from anisoscope.config.run import schedule
from anisoscope.data import corpus
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.tables import files as tables
from anisoscope.training import checkpoint, log, replay
from anisoscope.utils import files, folder, keeping, manifest
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.manifest import CHECKPOINTS, Entry
from anisoscope.utils.settings import flat, to_dict
from anisoscope.utils.stop import Stop

STAGE_OF = {  # by how a path below a run begins: what writes it again
    "test.json": "train",
    "tangents": "tangents",
    "loss_matched": "matched",
    "equal_gain": "matched",
    "contrasts_loss_matched": "matched",
    "export": "export",
    "figures": "figures",
    "report.html": "figures",
}
GONE = ("train", "events.out")  # logs: of what was lost in them there is no second copy


class Repaired(NamedTuple):
    """What was moved away or missing, to be compared with what comes in its place."""

    name: str
    folder: pathlib.Path
    before: dict[str, Entry]  # by path, those that can be written again
    stages: set[str]  # that write them


def verify(
    experiment: Config, configs: dict[str, Config], root: pathlib.Path, title: str, repair: bool
) -> list[Repaired]:
    """Look at every folder; RunError where one is not whole, or with `repair` what has to be done further."""
    folders = {"": root} | {name: root / name for name in configs}
    if repair:
        for name, path in folders.items():
            rebuild_settings(path, configs[name] if name else experiment)
    for name, path in folders.items():
        if os.path.lexists(path / "config.json"):
            try:
                files.read_json(path / "config.json", folder.SETTINGS_GONE)
            except UserError as error:
                raise RunError(str(error)) from error
            states = manifest.read(path).states.get("config.json")
            if states and (what := manifest.wrong(path / "config.json", states, False)):
                raise RunError(f"{path / 'config.json'} {what}; {folder.SETTINGS_GONE}")
        folder.check_claim(path, configs[name] if name else experiment, new=False)
    with contextlib.ExitStack() as locks, Stop() as stop:
        for path in folders.values():
            locks.enter_context(folder.locked(path))
        reports = {name: archive.verify(name or title, path, configs.get(name)) for name, path in folders.items()}
        drawn = archive.figures(root, title)
        damages = sum(len(report.wrong) for report in (*reports.values(), drawn))
        if not damages:
            return []
        if not repair:
            advice = "--stages=verify --repair moves them aside and computes them again"
            raise RunError(f"{title}: {damages} damaged, missing or not its own, as said above; {advice}")
        repaired = [
            set_right(name or title, report, configs.get(name), configs[name] if name else experiment, stop)
            for name, report in reports.items()
        ]
        return repaired + ([away_with_figures(title, drawn)] if drawn.wrong else [])


def away_with_figures(title: str, drawn: Report) -> Repaired:
    with keeping.alone(drawn.folder):  # what is not drawn any more is forgotten
        away(title, drawn)
        for one in drawn.wrong:
            keeping.note(drawn.folder / one)
    return Repaired(title, drawn.folder, {}, {"figures"})


def away(name: str, report: Report) -> None:
    """What is damaged goes to a folder of its own."""
    there = [one for one in report.wrong if os.path.lexists(report.folder / one)]
    if there:
        to = keeping.set_aside(report.folder, there)
        print(f"{name}: moved to {to}: {archive.some(there)}")
    for one in report.wrong:
        if not one.startswith(f"{CHECKPOINTS}/"):
            keeping.note(report.folder / one)
    if lost := [one for one in report.wrong if one.startswith(GONE) and one != log.NAME]:
        print(f"{name}: there is no second copy of {archive.some(lost)}")


def moved(name: str, report: Report, settings: Config | None) -> dict[str, Entry]:
    """Move aside what is damaged, and write settings again; what there was, where something can write it again."""
    run, known = report.folder, keeping.of_folder(report.folder)
    before = {
        path: states[-1]
        for path, states in known.states.items()
        if manifest.unit(path) in report.wrong and not path.startswith(GONE) and states[-1].bytes is not None
    }
    away(name, report)
    keeping.begin(run)
    if not os.path.lexists(run / "config.json"):
        rebuild_settings(run, settings)
    return before


def set_right(name: str, report: Report, config: Config | None, settings: Config, stop: Stop) -> Repaired:
    """Move aside what is damaged; put back at once what later stages start from. `config` is that of a run."""
    run, known = report.folder, keeping.of_folder(report.folder)
    lost = log_lines(run, known) if log.NAME in report.wrong else None
    before = moved(name, report, settings)
    if lost is not None:
        files.write(run / log.NAME, lost[0])
        print(f"{name}: {run / log.NAME}: {lost[1]}; of what is lost there is no second copy")
    wanted = {stage_of(one) for one in report.wrong} - {""}
    steps = steps_of(config, run, report.wrong) if config else []
    for one in report.wrong:  # those that are to come back are missed until they are there, whatever kills this
        if one.startswith(f"{CHECKPOINTS}/") and one not in {f"{CHECKPOINTS}/{step}" for step in steps}:
            keeping.note(run / one)
    if config and (steps or "environment.json" in report.wrong):
        try:
            text = text_of(config, known)
        except UserError as error:
            what = [*(f"{CHECKPOINTS}/{step}" for step in steps), *({"environment.json"} & {*report.wrong})]
            print(f"{name}: cannot come back, as the text is gone ({error}): {archive.some(what)}")
        else:
            if "environment.json" in report.wrong:
                folder.record_environment(run, text.record())
                print(f"{name}: {run / 'environment.json'} is begun anew; what it said of sessions before is lost")
            replay_checkpoints(config, text, run, steps, name, stop)
    return Repaired(name, run, before, wanted)


def steps_of(config: Config, run: pathlib.Path, wrong: dict[str, str]) -> list[int]:
    """Of checkpoints that are to be there."""
    there = {int(word) for one in wrong if (word := one.removeprefix(f"{CHECKPOINTS}/")).isdecimal()}
    return sorted(there & {*schedule(config.train.steps, config.checkpoint.every)})


def stage_of(one: str) -> str:
    """What writes it again; "": nothing needs to, or nothing can."""
    if one.startswith((*GONE, "config.json", "environment.json", manifest.NAME, CHECKPOINTS)):
        return ""
    return next((stage for start, stage in STAGE_OF.items() if one.startswith(start)), "measure")


def log_lines(run: pathlib.Path, known: manifest.Manifest) -> tuple[bytes, str]:
    """The lines of a log that are as they were written, and what is said of the others."""
    entry = known.states[log.NAME][-1] if log.NAME in known.states else Entry(log.NAME, 0, "")
    try:
        bad, content = {*manifest.bad_blocks(run / log.NAME, entry)}, (run / log.NAME).read_bytes()
    except OSError:
        return b"", "all of it is lost"
    starts = (0, *(end for end, _ in entry.blocks))
    good = [content[starts[i] : end] for i, (end, _) in enumerate(entry.blocks) if i not in bad]
    kept = sum(block.count(b"\n") for block in good)
    return b"".join(good), f"{kept:,} lines are as they were written and stay"


def text_of(config: Config, known: manifest.Manifest) -> Corpus:
    """The text of the run; UserError where it is gone, or another one."""
    text = corpus.load(config.data, config.model.context)
    then = {one["text"] for one in known.sessions if one.get("text")}
    if then and text.sha256 not in then:
        raise UserError(f"{text.name} has sha256 {text.sha256[:12]}…, and the run {min(then)[:12]}…")
    return text


def replay_checkpoints(
    config: Config, text: Corpus, run: pathlib.Path, steps: list[int], name: str, stop: Stop
) -> None:
    """Train again to these steps, from the nearest sound checkpoint before, and save them where they were."""
    if not steps:
        return
    kept = schedule(config.train.steps, config.checkpoint.every)
    with contextlib.closing(checkpoint.Checkpoints(run / CHECKPOINTS, kept)) as store:
        for step, state in replay.states(config, text, run, steps, name, stop):
            store.save(step, *state)


def rebuild_settings(run: pathlib.Path, config: Config | None) -> None:
    """config.json from what the manifest or results.nc carries, where it cannot be read; UserError where none does.

    And where that is of another config; None: who claims the folder compares. A manifest of other settings beside a
    config.json of these is the one of another folder.
    """
    path, known = run / "config.json", keeping.of_folder(run)
    with contextlib.suppress(UserError):
        there = files.read_json(path, "")
        if not manifest.wrong(path, known.states.get(path.name, [manifest.entry_of(path, path.name)]), False):
            return
        if config and not differing(there, config) and foreign(run, known, config):
            to = keeping.set_aside(run, [manifest.NAME])
            print(f"{run / manifest.NAME} is that of another folder; moved to {to}")
            return
    then = known.settings
    if then is None:
        with contextlib.suppress(RunError, OSError):
            then = files.from_json(tables.read_table(run / "results.nc").attrs["config"])
    if then is None:
        if not os.path.lexists(path):
            return  # there is no run, which is told elsewhere
        raise UserError(f"{path} is damaged, and neither {manifest.NAME} nor results.nc says what it held; write it")
    if config and (other := differing(then, config)):
        raise UserError(f"{path} is damaged, and held other settings than these: {', '.join(other[:3])}")
    if os.path.lexists(path):
        keeping.set_aside(run, ["config.json"])
    files.write_json(path, then)
    print(f"{path} is written again, from what {manifest.NAME} or results.nc says that it held")


def foreign(run: pathlib.Path, known: manifest.Manifest, config: Config) -> bool:
    """Whether a manifest is that of another folder: of other settings, and of other files than most that lie here."""
    if not (known.settings and differing(known.settings, config)):
        return False
    others = {path: states for path, states in known.states.items() if path != "config.json"}
    return 2 * sum(bool(manifest.wrong(run / path, states, False)) for path, states in others.items()) > len(others)


def differing(then: dict, config: Config) -> list[str]:
    """Names of the settings that are not those of the config."""
    before, now = flat(then), flat(to_dict(config))
    return [
        field
        for field in sorted(before.keys() | now.keys())
        if not field.startswith(folder.ANYWHERE) and before.get(field) != now.get(field)
    ]


def compare(repaired: list[Repaired]) -> None:
    """What came out of the repair, beside what was there before: equal to the bit, or not."""
    for name, run, before, _ in repaired:
        now, same = manifest.read(run), {}
        for path, entry in before.items():
            after = now.states[path][-1] if path in now.states else Entry(path, None, "")
            unit = manifest.unit(path)
            if unit != path and entry.about:  # files of Orbax have other names each time: the leaves count
                same[unit] = after.about == entry.about
            elif unit == path and path not in ("config.json", "environment.json"):
                same[path] = after.sha256 == entry.sha256
        if same:
            print(f"{name}: computed again: {len(same)}, of which {sum(same.values())} have the digests of before")
        if others := sorted(one for one, equal in same.items() if not equal):
            print(f"{name}: not as before, or not there: {archive.some(others)}")
