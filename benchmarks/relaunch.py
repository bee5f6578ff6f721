"""Measures a fresh process from imports and model construction to an answer of every gear, beside torch's ways."""

from __future__ import annotations

from typing import Any

from benchmarks._process import ContestantFailed, Outcome, Session
from benchmarks._sample import NO_BUDGET, Budget, Ratio, Sample

BATCHES = (1, 2, 4)


def rows(session: Session, model: str) -> list[Ratio]:
    """Return the rows of one model."""
    repeats = 1 if model == "smollm2" else 2 if session.options.quick else 5
    cold_ours(session, model)
    relaunched = [ours(session, model, f"relaunch {number}") for number in range(repeats)]
    ours(session, model, "cold, one gear", batches=BATCHES[:1])
    single = [ours(session, model, f"relaunch {number}, one gear", batches=BATCHES[:1]) for number in range(repeats)]
    total = _sample("ours", relaunched, "seconds")
    load = _sample("ours", relaunched, "load")
    pairs = zip(relaunched, single, strict=True)
    more = [(three.report["load"] - one.report["load"]) / (len(BATCHES) - 1) for three, one in pairs]
    small = model != "smollm2"
    label = f"relaunch {model}, {len(BATCHES)} gears"
    # The 30 ms are for a model whose own steps are short: the answers themselves count.
    found = [
        Ratio(
            f"{label}: import, load and first answers, beside torch.compile's with a warm disk cache",
            _peer(session, "torch.compile warm", warm_compiled, model, "whole"),
            _sample("ours", relaunched, "whole"),
            Budget(ratio_at_least=100.0, ours_at_most=0.060) if small else NO_BUDGET,
        ),
        Ratio(
            f"{label}: without the imports, beside torch.compile, warm disk cache",
            _peer(session, "torch.compile warm", warm_compiled, model),
            total,
            Budget(ratio_at_least=100.0, ours_at_most=0.030) if small else NO_BUDGET,
        ),
        Ratio(
            f"{label}: beside load_compiled_function",
            _peer(session, "aot", aot_loaded, model),
            total,
            Budget(ratio_at_least=100.0) if small else NO_BUDGET,
        ),
        Ratio(
            f"{label}: beside load_compiled_function, Inductor's folder elsewhere",
            _peer(session, "aot moved", aot_moved, model),
            total,
            Budget(ratio_at_least=100.0) if small else NO_BUDGET,
        ),
        Ratio(f"{label}: beside torch.compile, cold", _peer(session, "cold", cold_compiled, model), total),
        Ratio(f"{label}: beside eager (no compiler at all)", _peer(session, "eager", eager, model), total),
        Ratio(f"{label}: load alone, no answer", None, load, Budget(ours_at_most=0.030)),
        Ratio(
            f"{label}: of it, the evidence, compared and watched",
            None,
            _sample("ours", relaunched, "evidence"),
            Budget(None, 0.005),
        ),
        Ratio(f"{label}: load of an entry with one gear", None, _sample("ours", single, "load")),
        # Gear 1 has its own trace, so this counts a second variant too.
        Ratio(f"{label}: each gear that an entry has more", None, Sample.of("ours", more, "s")),
        Ratio(f"{label}: of it, each gear", None, _sample("ours", relaunched, "gear"), Budget(ours_at_most=0.002)),
        Ratio(f"{label}: `import gearcache`, after torch", None, _sample("ours", relaunched, "import")),
    ]
    _check_tokens(session, model, relaunched)
    return found


def cold_ours(session: Session, model: str) -> Outcome:
    """Return our cold start; its entry serves all later relaunches."""
    return ours(session, model, "cold")


def ours(
    session: Session,
    model: str,
    stage: str,
    *,
    batches: tuple[int, ...] = BATCHES,
    options: dict[str, Any] | None = None,
) -> Outcome:
    """Return one of our processes."""
    order = {
        **_order(model, batches),
        "cache_dir": str(session.folder / "ours" / "gearcache"),
        "options": options or {},
        "backend": session.options.backend,
        "relaunch": stage.startswith("relaunch"),
    }
    # Inductor's own folder is new each time: only our entry is warm.
    return session.run(f"{model}, ours, {stage}", "benchmarks.contestants:ours", order, home=f"ours {model} {stage}")


def background_ours(session: Session, model: str) -> Outcome:
    """Return our process on an empty cache, where no call waits for the compile."""
    order = {
        **_order(model),
        "cache_dir": str(session.folder / "background" / "gearcache"),
        "options": {},
        "backend": session.options.backend,
    }
    target = "benchmarks.contestants:background"
    return session.run(f"{model}, ours, background", target, order, home=f"ours {model} background")


def eager(session: Session, model: str) -> Outcome:
    """Return eager's process."""
    return session.run(f"{model}, eager", "benchmarks.contestants:eager", _order(model), home=f"eager {model}")


def cold_compiled(session: Session, model: str) -> Outcome:
    """Return torch.compile's process on empty caches."""
    target = "benchmarks.contestants:compiled"
    return session.run(f"{model}, torch.compile cold", target, _order(model), home=f"compile {model}")


def warm_compiled(session: Session, model: str) -> Outcome:
    """Return torch.compile's process on the disk cache of the cold one."""
    cold_compiled(session, model)
    target = "benchmarks.contestants:compiled"
    return session.run(f"{model}, torch.compile warm", target, _order(model), home=f"compile {model}")


def aot_loaded(session: Session, model: str) -> Outcome:
    """Return the process that loads compiled functions, with the Inductor folder of the one that saved them."""
    home = f"aot {model}"
    order = {**_order(model), "files": str(session.folder / f"aot-{model}-")}
    session.run(f"{model}, save compiled functions", "benchmarks.contestants:aot_saved", order, home=home)
    return session.run(f"{model}, load compiled functions", "benchmarks.contestants:aot_loaded", order, home=home)


def aot_moved(session: Session, model: str) -> Outcome:
    """Return the same if only the saved files were copied, as into a new container: it runs g++ again."""
    aot_loaded(session, model)
    order = {**_order(model), "files": str(session.folder / f"aot-{model}-")}
    name = f"{model}, load compiled functions elsewhere"
    return session.run(name, "benchmarks.contestants:aot_loaded", order, home=f"aot {model} elsewhere")


def _order(model: str, batches: tuple[int, ...] = BATCHES) -> dict[str, Any]:
    return {"model": model, "batches": list(batches)}


def _peer(session: Session, name: str, work: Any, model: str, figure: str = "seconds") -> Sample | None:
    try:
        return _sample(name, [work(session, model)], figure)
    except ContestantFailed:
        return None


def _sample(name: str, outcomes: list[Outcome], figure: str) -> Sample:
    return Sample.of(name, [float(outcome.report[figure]) for outcome in outcomes], "s")


def _check_tokens(session: Session, model: str, relaunched: list[Outcome]) -> None:
    """Fail unless every relaunch gave the tokens of eager: the time of a wrong answer does not count."""
    expected = eager(session, model).report["tokens"]
    for outcome in relaunched:
        if outcome.report["tokens"] != expected:
            raise ContestantFailed(f"{model}: ours gave {outcome.report['tokens']}, eager {expected}")
