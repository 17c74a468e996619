"""`headway bench`: measure how one or more servers, in turn, answer scheduled traffic."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from headway.commands.bench.bench_offers import offers_of
from headway.commands.bench.bench_report import BenchReport
from headway.commands.bench.bench_traffic import BenchWork, bench_lanes, bench_work
from headway.commands.bench.find_capacity import check_budgets, find_capacity
from headway.commands.bench.options import BenchOptions
from headway.commands.interruption import exit_status, terminable
from headway.errors import SettingError
from headway.report.report_json import writable
from headway.runs.progress import show_progress
from headway.runs.remote.client_run import ClientRun, Manner
from headway.runs.remote.first_contact import Contact
from headway.runs.remote.offer import Offer
from headway.runs.remote.target import Target, read_target
from headway.runs.remote.wording import Wording
from headway.server.listening.descriptors import raise_limit
from headway.yaml_values import number

NUMBERS = (
    *("poisson", "ttft", "tpot", "e2e", "seconds", "rate", "speed", "token_scale"),
    *("warm_up", "drain", "find_capacity"),
)  # options that are numbers
DESCRIPTORS = 1 << 20  # one per request; in effect, as many as the system allows
NO_REPORT = "Broken off before any request was sent: no report."


def run_bench(options: BenchOptions, console: Console) -> int:
    """Measure the servers and return the exit status.

    Raises a HeadwayError for errors the user can fix.
    """
    targets, headers = check(options), _headers(options.key_env)
    models = _models(options)
    lanes, folder = bench_lanes(options), writable(options.out)
    if options.find_capacity:
        check_budgets(lanes, options)
    text = options.text or any(lane.calling.sessions.most > 1 for lane in lanes)

    def tell(news: str) -> None:
        console.print(Text(news, style="yellow"))

    raise_limit(DESCRIPTORS)
    with terminable():
        try:
            wordings = [
                asyncio.run(Contact(each, headers, tell).wording(model, options.chat, text))
                for each, model in zip(targets, models, strict=True)
            ]
            work = bench_work(lanes, options, smallest_context(wordings))
            if options.find_capacity:
                return find_capacity(options, wordings, lanes, work, console)
            report = BenchReport(options, wordings, lanes, work, console, folder)
            bench = Bench(report, [offers_of(work, lanes, each, options.seed) for each in wordings])
        except KeyboardInterrupt as end:
            console.print(Text(NO_REPORT, style="yellow"))
            return exit_status(end)
        return bench.run()


def check(options: BenchOptions) -> list[Target]:
    """Check the options; return the servers. SettingError for options that cannot be obeyed."""
    for name in NUMBERS:
        if getattr(options, name) is not None:
            number(getattr(options, name), f"--{name.replace('_', '-')}")
    targets = [read_target(url) for url in options.urls]
    names = [each.name for each in targets]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"{twice[0]} is named twice; --repeat measures it again")
    if options.chat and options.text:
        raise SettingError("--text is of completions: in a chat all prompts are text")
    return targets


def _models(options: BenchOptions) -> Sequence[str]:
    """The model's name on each server; an empty name means the server's only model."""
    servers, given = len(options.urls), options.models or ("",)
    if len(given) not in (1, servers):
        raise SettingError(
            f"--model is said once, or once for each URL ({servers}), not {len(given)} times"
        )
    return given * servers if len(given) == 1 else given


def _headers(key_env: str) -> dict[str, str]:
    """The headers of every request: the API key, if there is one."""
    if not key_env:
        return {}
    key = os.environ.get(key_env, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise SettingError(f"--key-env: the environment has no key in {key_env}")
    return {"authorization": f"Bearer {key}"}


def smallest_context(wordings: Sequence[Wording]) -> int:
    """The tokens that a request may have on every server; 0: no server states its context."""
    stated = [each.room for each in wordings if each.context]
    return min(stated, default=0)


@dataclass(slots=True)
class Bench:
    """The runs on all servers. Servers alternate within a repeat, so drift affects all alike."""

    report: BenchReport
    offers: Sequence[Sequence[Offer]]  # by server

    def run(self) -> int:
        """Measure all servers, write both reports, and return the exit status.

        An interrupted run leaves the rows so far.
        """
        report = self.report
        report.opening()
        try:
            for repeat in range(report.options.repeat):
                for wording, offers in zip(report.wordings, self.offers, strict=True):
                    self._serve(wording, offers, repeat)
        except KeyboardInterrupt as end:
            return self._broken_off(end)
        return report.closing(complete=True)

    def _serve(self, wording: Wording, offers: Sequence[Offer], repeat: int) -> None:
        """Measure one server once, and keep its rows, even if the run is interrupted."""
        report, options, name = self.report, self.report.options, wording.target.name
        title = f"{name} {repeat + 1}" if options.repeat > 1 else name
        run = ClientRun(wording, offers, report.core_lanes, _manner(options, report.work))
        try:
            with show_progress(report.console, title, len(offers), report.work.window) as watch:
                run.serve(watch)
        finally:
            report.add(name, run.outcome(), run.load)

    def _broken_off(self, end: KeyboardInterrupt) -> int:
        report = self.report
        report.closing(complete=False)
        ended = sum(len(each.requests) for runs in report.runs.values() for each in runs)
        kept = f"The rows so far are in {report.folder / 'report.json'}."
        text = f"Broken off: {ended:,} requests had ended. {kept}"
        report.console.print(Text(text, style="yellow"))
        return exit_status(end)


def _manner(options: BenchOptions, work: BenchWork) -> Manner:
    drain = round(options.drain * 1e9)
    return Manner(drain, work.window, options.retries, options.callers, options.seed)
