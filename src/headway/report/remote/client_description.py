"""What was run against servers, as the page states it: servers, traffic, client, time."""

from collections.abc import Mapping
from typing import Any

from headway.report.analysis import Analysis
from headway.report.formatting import figures
from headway.report.run_description import cut_text, traffic_text

TEXTS = {
    "ids": "token ids of its own tokenizer, so their lengths are exact",
    "text": "text of about as many tokens",
    "chat": "a message of about as many tokens",
}
COUNTED = "The tables have its own counts of tokens"
UNCOUNTED = "Its streams count no tokens: pieces of text are counted, and prompts are estimated"


def stated(found: Analysis) -> list[tuple[str, str]]:
    """The facts about the run, each a (title, sentence)."""
    about = found.report.about
    work, asked = about["workload"], about["asked"]
    machine = about["machine"]
    lines = [(f"Server {each['name']}", server_text(each)) for each in about["servers"]]
    what, of_sessions = asked_text(work)
    rate = (
        f"{figures(work['requests_per_second'])} {what} / s, "
        f"{work['requests']:,} in all{of_sessions}"
    )
    if shorter := cut_text(work["cut_to_context"]):
        rate += f"; {shorter}"
    lines += [
        ("Client", f"{machine['cores']} cores of {machine['processor']}; {machine['system']}"),
        ("Seed", str(about["seed"])),
        ("Offered load", rate),
        ("Traffic", traffic_text(work)),
        ("Time", time_text(work)),
        ("Loop", loop_text(asked)),
        ("Repeats", str(len(next(iter(found.report.runs.values()), ())))),
    ]
    if len(found.strategies) > 1:
        lines.append(("Baseline", found.baseline))
    return lines


def asked_text(work: Mapping[str, Any]) -> tuple[str, str]:
    """What arrives, requests or sessions, and how many of the requests begin a session."""
    sessions = work.get("sessions", 0)
    if sessions == work["requests"]:
        return "sessions", ""
    return "requests", f", {sessions:,} of which begin a session" if sessions else ""


def time_text(work: Mapping[str, Any]) -> str:
    """The window, the drain and the warm-up."""
    return (
        f"{figures(work['window_ns'] / 1e9, 4)} s of arrivals, drained for at most "
        f"{figures(work['drain_ns'] / 1e9, 4)} s; who has not ended then counts as not served. "
        f"Arrivals of the first {figures(work['warm_up_ns'] / 1e9, 4)} s are warm-up and excluded"
    )


def server_text(each: Mapping[str, Any]) -> str:
    """How one server was asked, and how its tokens are counted."""
    extras = " and ".join(each["extras"])
    lengths = (
        f"It took {extras}, which ask for answers of full length"
        if extras
        else "It takes neither ignore_eos nor min_tokens, so answers may be shorter than asked for"
    )
    counts = COUNTED if each["counts"] else UNCOUNTED
    prompts = TEXTS[each["prompts"]]
    return f"{each['url']}, {each['model']}. Prompts: {prompts}. {lengths}. {counts}"


def loop_text(asked: Mapping[str, Any]) -> str:
    """Whether the loop was open or closed, and what a refused caller does."""
    text = "open: requests are sent at their times, however many are unanswered"
    if asked["callers"]:
        text = (
            f"CLOSED: {asked['callers']} callers, each asks again once it is answered. A slow "
            "server is asked less, so its latencies look better than in an open loop"
        )
    tries = asked["retries"]
    again = f"a refused one comes back up to {tries} times" if tries else "a refused one stays away"
    return f"{text}; {again}"
