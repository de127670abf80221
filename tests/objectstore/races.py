"""Races of the operations that the protocols of tables and publications rely on, against one object store."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from lsr_prod.errors import StorageError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.index_format import Publication
from lsr_prod.storage.publications import create_publication, find_current_publication, read_publication

__all__ = ["race_restarts", "run_races"]

_WRITERS = 8
_PROCESS = """
import json, sys
from lsr_prod.storage import Store
uri, options, writer, rounds = sys.argv[1:]
store = Store(uri, json.loads(options))
won = []
sys.stdin.readline()
for number in range(int(rounds)):
    if store.put_new(f"{number:06d}", writer.encode()):
        won.append(number)
print(json.dumps(won))
"""


def race_creations(store: Store, rounds: int) -> list[str]:
    """Let writers create one object at once in every round; return a sentence per round without exactly one winner.

    Args:
        store: an empty folder.
        rounds: number of objects.
    """
    found = []
    with ThreadPoolExecutor(_WRITERS) as threads:
        for number in range(rounds):
            name = f"{number:06d}"
            won = list(threads.map(lambda writer, name=name: store.put_new(name, b"%d" % writer), range(_WRITERS)))
            content = store.get(name)
            if sum(won) != 1:
                found.append(f"{store.uri}/{name} was created by {sum(won)} of {_WRITERS} writers")
            elif content != b"%d" % won.index(True):
                found.append(f"{store.uri}/{name} has the content {content!r}, but {won.index(True)} created it")
    return found


def race_processes(store: Store, rounds: int, writers: int = 4) -> list[str]:
    """Let processes create the same objects in the same order; return a sentence per object without one winner.

    Args:
        store: an empty folder.
        rounds: number of objects.
        writers: processes.
    """
    commands = [
        [sys.executable, "-c", _PROCESS, store.uri, json.dumps(store.options), str(writer), str(rounds)]
        for writer in range(writers)
    ]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for command in commands]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    wins = [set(json.loads(process.communicate(timeout=600)[0])) for process in running]
    found = []
    for number in range(rounds):
        winners = [str(writer) for writer, won in enumerate(wins) if number in won]
        content = store.get(f"{number:06d}")
        if len(winners) != 1 or content != winners[0].encode():
            found.append(f"{store.uri}/{number:06d}: created by {winners} of {writers} processes, contains {content!r}")
    return found


def race_publications(store: Store, publications: int) -> list[str]:
    """Let writers publish until there is a number of publications; return a sentence per gap and per lost one.

    Args:
        store: an empty folder.
        publications: made by each writer.
    """

    def publish(writer: int) -> dict[int, str]:
        made: dict[int, str] = {}
        while len(made) < publications:
            current = find_current_publication(store)
            number, version = 1 if current is None else current.number + 1, f"{writer * publications + len(made):064x}"
            if create_publication(store, Publication(number, version, "now")):
                made[number] = version
        return made

    with ThreadPoolExecutor(_WRITERS) as threads:
        made = list(threads.map(publish, range(_WRITERS)))
    total = _WRITERS * publications
    expected = {number: version for some in made for number, version in some.items()}
    if len(expected) != total or sorted(expected) != list(range(1, total + 1)):
        return [f"{store.uri}: {total} publications were created, but they have {len(expected)} numbers"]
    return [
        f"{store.uri}: publication {number} is not the one that was created"
        for number, version in expected.items()
        if read_publication(store, number).version != version
    ]


def race_listings(store: Store, rounds: int) -> list[str]:
    """List from another client after each write and each deletion; return a sentence per wrong listing.

    Args:
        store: an empty folder.
        rounds: objects of each of several threads, which write at once.
    """
    other = Store(store.uri, {**store.options, "user_agent": "other"})  # a client with connections of its own

    def write(writer: int) -> list[str]:
        found = []
        for number in range(rounds):
            name = f"{writer}/{number:06d}"
            store.put_new(name, b"x")
            found += _wrong(other, f"{writer}", name, listed=True)
            if number % 2:
                store.delete(name)
                found += _wrong(other, f"{writer}", name, listed=False)
        return found

    with ThreadPoolExecutor(_WRITERS // 2) as threads:
        found = [sentence for some in threads.map(write, range(_WRITERS // 2)) for sentence in some]
    left = {f"{writer}/{number:06d}" for writer in range(_WRITERS // 2) for number in range(0, rounds, 2)}
    if set(other.names()) != left:
        found.append(f"{store.uri} lists {len(other.names())} objects instead of {len(left)}")
    return found


def race_restarts(store: Store, rounds: int, restart: Callable[[], None]) -> tuple[int, int, list[str]]:
    """Let writers create the same objects while the server crashes and starts again until they are done.

    A creation that fails may have happened, and so may one that is refused: its answer was lost, and it was repeated.

    Args:
        store: an empty folder.
        rounds: number of objects.
        restart: kills the server and starts it again.

    Returns:
        Number of restarts, number of failed creations, a sentence per object that is not as its writers were told.
    """

    def create(writer: int) -> list[bool | None]:
        made: list[bool | None] = []
        for number in range(rounds):
            try:
                made.append(store.put_new(f"{number:06d}", b"%d" % writer))
            except StorageError:
                made.append(None)
        return made

    restarts, found = 0, []
    with ThreadPoolExecutor(_WRITERS) as threads:
        running = [threads.submit(create, writer) for writer in range(_WRITERS)]
        while not all(one.done() for one in running):
            restart()
            restarts += 1
            wait(running, timeout=2)
        made = [one.result() for one in running]
    for number in range(rounds):
        told = [some[number] for some in made]
        content = store.get(f"{number:06d}")
        if told.count(True) > 1 or (True in told and content != b"%d" % told.index(True)):
            found.append(f"{store.uri}/{number:06d} contains {content!r}, its writers were told {told}")
        elif content is None and set(told) != {None}:
            found.append(f"{store.uri}/{number:06d} is absent, its writers were told {told}")
    return restarts, sum(some.count(None) for some in made), found


def _wrong(store: Store, folder: str, name: str, *, listed: bool) -> list[str]:
    if (name in store.names(folder)) == listed:
        return []
    return [f"{store.uri}/{name} is {'not listed after it was written' if listed else 'listed after it was deleted'}"]


def run_races(store: Store, rounds: int) -> tuple[dict[str, int], list[str]]:
    """Run all races; return the rounds of each, and a sentence for everything that a store must not do.

    Args:
        store: an empty folder.
        rounds: creations that are raced for; the other races have fewer.
    """
    fewer, each = max(rounds // 10, 4), max(rounds // 100, 2)
    races: Sequence[tuple[str, Callable[[Store, int], list[str]], int]] = (
        ("creations", race_creations, rounds),
        ("creations_of_processes", race_processes, rounds),
        ("publications", race_publications, each),
        ("listings", race_listings, fewer),
    )
    found = [sentence for name, race, number in races for sentence in race(store.child(name), number)]
    return {name: number for name, _, number in races}, found
