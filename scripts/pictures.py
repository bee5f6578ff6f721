"""Draws the pictures of the documentation: `python scripts/pictures.py` writes `docs/{call,relaunch,fleet}.svg`.

Each shows what a page says: the life of a call (`ARCHITECTURE.md`), what a cold start and a relaunch do
(`docs/guide.md`), and how hosts share entries (`docs/fleet.md`). Their words are those of `docs/words.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from drawing import HEADING, Box, Picture, Row

DOCS = Path(__file__).resolve().parents[1] / "docs"
#: Left end and width of boxes: with lanes for arrows on both sides, with one to the right, without.
BOTH, ONE, NONE = (40, 290), (16, 340), (16, 368)
LEFT_LANE, RIGHT_LANE = 20, 378
BETWEEN, BELOW = 22, 14  # two panels; the last box of a panel
SIDE = 13  # from the top of a box to an arrow that comes in, from an arrow that goes out to its bottom


def draw_call() -> Picture:
    """Draw the life of a call."""
    picture = Picture(
        "The life of a call",
        "Every call passes the watch and the argument checks. The table of gears leads to a frame, which calls the "
        "compiled graph and returns the result. If no loaded graph takes the call, gearcache finds the stored entry, "
        "compares its evidence, loads its graphs and goes on at the frame. A miss has a reason. The call then raises, "
        "runs eagerly, is padded or compiles. A compile holds the lock of the key: look again, trace, compile each "
        "gear, store, and load the graphs as a relaunch does.",
    )
    served = _every_call(picture)
    found = _lookup(picture, served)
    compile_chip = _miss(picture, found)
    loaded = _compile(picture, compile_chip)
    _lead(picture, [loaded, found[-1]], served[4], LEFT_LANE)
    return picture


def _every_call(picture: Picture) -> list[Box]:
    rows = [
        Row("start", "Call"),
        Row("look", "Watch, state check", "is all as it was at the load?"),
        Row("look", "Argument checks", "do types, sizes, strides fit?"),
        Row("look", "Table of gears", "is there a graph of these sizes?"),
        Row("gears", "Frame", "unpacks arguments, calls the graph"),
        Row("gears", "Compiled graph", "after a check of its tensors"),
        Row("answer", "Result"),
    ]
    return _panel(picture, 1, "Every call", BOTH, rows)


def _lookup(picture: Picture, served: list[Box]) -> list[Box]:
    rows = [
        Row("look", "Find the stored entry", "is there one under the key?"),
        Row("look", "Compare the evidence", "is what the trace read the same?"),
        Row("gears", "Hit: load the graphs", "the table of gears now has them"),
    ]
    boxes = _panel(picture, _next(served), "No loaded graph takes the call", BOTH, rows)
    _lead(picture, served[1:4], boxes[0], RIGHT_LANE, "no")
    return boxes


def _miss(picture: Picture, found: list[Box]) -> Box:
    top = _next(found)
    rows = [
        Row("trace", "Reason", "in explain() and in the log"),
        Row("trace", "Decide", "the option on_miss says what to do"),
    ]
    boxes = picture.column(*BOTH, top + HEADING, rows)
    chips = picture.chips(BOTH[0], boxes[-1].bottom + 16, ["raise", "run eagerly", "pad or compile"])
    picture.panel(top, chips[-1].bottom + BELOW, "Miss", BOTH[0])
    for chip in chips:
        picture.arrow((chip.centre, boxes[-1].bottom), (chip.centre, chip.top))
    _lead(picture, found[:2], boxes[0], RIGHT_LANE, "no")
    return chips[-1]


def _compile(picture: Picture, chip: Box) -> Box:
    rows = [
        Row("look", "Look again", "stored by now, here or in a tier?"),
        Row("trace", "Trace", "Dynamo runs once"),
        Row("compile", "Compile each gear", "in worker processes"),
        Row("compile", "Store", "blobs first, then the manifest"),
        Row("gears", "Load the graphs", "as a relaunch does"),
    ]
    boxes = _panel(picture, _next([chip]), "Compile, under the lock of the key", BOTH, rows)
    _lead(picture, [chip], boxes[0], RIGHT_LANE)
    _lead(picture, boxes[:1], boxes[-1], RIGHT_LANE, "yes")
    return boxes[-1]


def draw_relaunch() -> Picture:
    """Draw what a cold start does, and what a relaunch does."""
    picture = Picture(
        "Cold start and relaunch",
        "A cold start finds no entry, traces the call with Dynamo, compiles a graph for each gear, stores them with "
        "their evidence, and loads them. It imports torch._dynamo and Inductor and runs a C++ compiler. A relaunch "
        "reads the manifest of the entry, compares the evidence and loads the graphs. It imports torch and gearcache, "
        "and on CPU neither torch._dynamo nor Inductor; it needs no compiler.",
    )
    cold_rows = [
        Row("look", "Look for an entry", "there is none under the key"),
        Row("trace", "Trace", "Dynamo runs over the call"),
        Row("compile", "Compile each gear", "in worker processes"),
        Row("compile", "Store", "graphs and evidence"),
        Row("gears", "Load the graphs", "as a relaunch does"),
        Row("answer", "Result"),
    ]
    warm_rows = [
        Row("look", "Read the manifest", "of the entry under the key"),
        Row("look", "Compare the evidence", "is what the trace read the same?"),
        Row("gears", "Load the graphs", "with the live weights"),
        Row("answer", "Result"),
    ]
    needed, compilers = ["torch", "gearcache"], ["torch._dynamo", "Inductor", "C++ compiler"]
    cold = _process(picture, 1, "Cold start", cold_rows, [("It imports or runs", needed), ("", compilers)])
    entry = picture.store(90, 220, cold[-1].bottom + BELOW + BETWEEN, Row("", "Entry", "in .torchair_cache"))
    top = entry.bottom + BETWEEN
    warm = _process(
        picture,
        top,
        "Relaunch",
        warm_rows,
        [("It imports or runs", needed), ("On CPU it does not import or run", compilers)],
    )
    _lead(picture, [cold[3]], entry, RIGHT_LANE)
    _lead(picture, [entry], warm[0], RIGHT_LANE)
    return picture


def _process(
    picture: Picture, top: int, heading: str, rows: Sequence[Row], used: Sequence[tuple[str, list[str]]]
) -> list[Box]:
    """Draw what a process does, and below it what it uses; returns the boxes and the last chip."""
    boxes = picture.column(*ONE, top + HEADING, rows)
    end = boxes[-1].bottom + 10
    for note, names in used:
        if note:
            end = picture.note(*ONE, end, note).bottom + 4
        boxes.append(picture.chips(ONE[0], end, names, are_absent="not" in note)[-1])
        end = boxes[-1].bottom + 6
    picture.panel(top, boxes[-1].bottom + BELOW, heading, ONE[0])
    return boxes


def draw_fleet() -> Picture:
    """Draw how hosts share what one of them compiles."""
    picture = Picture(
        "Hosts share one compile",
        "Before traffic, a build host or CI compiles with gearcache prewarm, signs each entry with a private key and "
        "pushes it to a tier: a folder, Redis or a bucket. Hosts pull entries, check their signatures with trusted "
        "public keys, unless the URL of the tier says unsigned=1, and load the graphs without a compile. If no tier "
        "has a graph, the first host takes a lease, compiles, signs, stores, answers and uploads. The others wait and "
        "fetch.",
    )
    build_rows = [
        Row("compile", "Compile on a build host or in CI", "gearcache prewarm deploy:build", is_code=True),
        Row("look", "Sign each entry", "with the private key"),
        Row("start", "Push", "gearcache push --to s3://bucket/team", is_code=True),
    ]
    host_rows = [
        Row("start", "Pull", "gearcache pull --require deploy:build", is_code=True),
        Row("look", "Check the signature", "with the trusted public keys"),
        Row("gears", "Load the graphs", "without a compile"),
    ]
    build = _panel(picture, 1, "Before traffic", NONE, build_rows)
    tier = picture.store(70, 260, _next(build), Row("", "Tier", "a folder, Redis or a bucket"))
    hosts = _panel(picture, tier.bottom + BETWEEN, "Each host", NONE, host_rows, copies=2)
    picture.arrow((tier.centre, build[-1].bottom + BELOW), (tier.centre, tier.top))
    picture.arrow((tier.centre, tier.bottom), (tier.centre, tier.bottom + BETWEEN))
    _lease(picture, _next(hosts) + 8)
    return picture


def _lease(picture: Picture, top: int) -> None:
    """Draw what hosts do that miss a graph at once."""
    first_rows = [
        Row("look", "First host", "takes the lease"),
        Row("compile", "Compile", "sign, store, answer"),
        Row("start", "Upload", "in the background"),
    ]
    left, width = NONE[0], 170
    first = picture.column(left, width, top + HEADING, first_rows)
    right = left + NONE[1] - width
    wait = picture.box(
        right, width, first[0].top, Row("look", "Other hosts", "wait for its result"), first[1].bottom - first[0].top
    )
    fetch = picture.box(right, width, first[2].top, Row("gears", "Fetch and load", "from the tier"))
    picture.arrow((wait.centre, wait.bottom), (fetch.centre, fetch.top))
    picture.arrow((first[2].right, first[2].middle), (fetch.left, fetch.middle))
    note = picture.note(*NONE, fetch.bottom + 10, "If the first host stops, another one takes the lease.")
    picture.panel(top, note.bottom + BELOW, "If no tier has the graph", left)


def _panel(
    picture: Picture, top: int, heading: str, place: tuple[int, int], rows: Sequence[Row], *, copies: int = 0
) -> list[Box]:
    """Draw boxes below each other on a panel."""
    boxes = picture.column(*place, top + HEADING, rows)
    picture.panel(top, boxes[-1].bottom + BELOW, heading, place[0], copies=copies)
    return boxes


def _next(boxes: Sequence[Box]) -> int:
    """Return the top of what follows the panel of some boxes."""
    return boxes[-1].bottom + BELOW + BETWEEN


def _lead(picture: Picture, boxes: Sequence[Box], target: Box, lane: int, label: str = "") -> None:
    """Draw an arrow from the side of a box along a lane to that of another one; further boxes join it on its way."""
    is_right = lane > target.centre
    comes = target.top + SIDE
    for box in boxes:
        start, leaves = box.right if is_right else box.left, box.bottom - min(SIDE, box.height // 2)
        if box is boxes[0]:
            end = target.right if is_right else target.left
            picture.arrow((start, leaves), (lane, leaves), (lane, comes), (end, comes))
        else:
            bend = leaves + (6 if comes > leaves else -6)
            picture.arrow((start, leaves), (lane, leaves), (lane, bend), has_tip=False)
        if label:
            picture.label((start + lane) // 2, leaves, label)


PICTURES: dict[str, Callable[[], Picture]] = {"call": draw_call, "relaunch": draw_relaunch, "fleet": draw_fleet}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        draw().write(DOCS / f"{name}.svg")
