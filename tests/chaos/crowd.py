"""The clients of one server: some send hostile cases, others valid requests whose answers must be those of the quiet server."""
import collections
import random
import threading
import time
import traceback

import bodies
import heads
import schemas
from answers import ALWAYS, NEVER, Bad, normal
from cases import Case, Deck, Shuffled, request, write
from routes import ROWS
from ways import QUICK, WAYS, Link, ask_all, send

QUICK_THREADS, SLOW_THREADS, VALID_THREADS = 10, 6, 3
RECENT = 2  # sends of a thread that are kept for the report
BUSY = {429, 503}
TRIES = 2000  # of a valid request, while hostile ones fill the queue: more than a minute and a half


def travelled(i, rng):
    """A valid request, or a hostile body, that travels in a hostile way."""
    name, method, path, body = ROWS[i % len(ROWS)]
    how = rng.choice([one for one in WAYS if one not in ("ask", "closing")])
    if body and rng.random() < 0.5:
        body = {**body, **({"stream": True} if path.endswith("completions") else {}), "max_tokens": rng.choice([1, 30, 400])}
        if how == "slow_read":
            body |= {"logprobs": True, "top_logprobs": 20} if "messages" in body else {"logprobs": 20, "n": 4}
    return lambda key: request(method, path, write(body) if body else None, key=key), how, f"{name} by {how}"


def slow_compiles(i, rng):
    """The client leaves while a worker compiles."""
    name = rng.choice(["required", "properties", "enum", "names", "alternatives", "counts", "rules"])
    data, _, what = bodies.large(list(bodies.LARGE).index(name), rng)
    return data, rng.choice(["leave", "leave", "ask"]), f"{what} and leaves"


DECKS = [*bodies.DECKS, *schemas.DECKS, *heads.DECKS, Deck("travelled", 50 * len(ROWS), travelled, 12),
         Deck("compiles", 1000, slow_compiles, 0.1)]


class World:
    """What the threads of one round share."""

    def __init__(self, server, seed):
        self.port, self.key, self.server = server.port, server.setup.key, server
        self.lock, self.stopping, self.seed = threading.Lock(), threading.Event(), seed
        self.sent, self.checked, self.busy, self.failures = collections.Counter(), 0, 0, []
        self.recent = collections.defaultdict(lambda: collections.deque(maxlen=RECENT))
        self.decks = [Shuffled(deck, seed) for deck in DECKS]
        self.random = random.Random(f"{seed} decks")
        self.waiting = collections.deque()  # cases of slow ways, for the threads that have time

    def fail(self, what, cases):
        with self.lock:
            if not self.stopping.is_set():
                self.failures.append((what, list(cases)))
        self.stopping.set()

    def draw(self):
        with self.lock:
            [deck] = self.random.choices(self.decks, [one.deck.weight for one in self.decks])
            return deck.next(self.key)

    def quick(self):
        """The next cases for a thread that may not wait, of one way."""
        while (case := self.draw()).how not in QUICK:
            if len(self.waiting) < 50:
                self.waiting.append(case)
        return case

    def slow(self):
        while not self.waiting:
            case = self.draw()
            if case.how not in QUICK:
                return case
        return self.waiting.popleft()


def keep_sending(world, number, next_case):
    """A hostile thread."""
    rng = random.Random(f"{world.seed} {number}")
    pending = []
    while not world.stopping.is_set():
        case = next_case()
        if case.how == "ask" and len(pending) < 6 and len(case.data) < 100_000:
            pending.append(case)  # plain ones travel together
            continue
        batches = [[case]] + ([pending] if len(pending) >= 6 else [])
        pending = [] if len(pending) >= 6 else pending
        for cases in batches:
            attempt(world, number, cases, rng)


def attempt(world, number, cases, rng):
    world.recent[number].append(cases)
    try:
        n = ask_all(world, cases) if len(cases) > 1 else send(world, cases[0], rng)
    except (Bad, OSError) as error:
        world.fail(f"{type(error).__name__}: {error}", cases)
        return
    except Exception:
        world.fail(traceback.format_exc(), cases)
        return
    with world.lock:
        world.sent[cases[0].name.split(":")[0]] += n


def ask_valid(world, row):
    """The answer to a valid request; while the server is full it is sent again."""
    _, method, path, body = row
    key = "monitor" if path in ("/metrics", "/version") and "--metrics-key" in world.server.setup.flags else world.key
    data = request(method, path, write(body) if body is not None else None, key=key)
    for _ in range(TRIES):
        with Link(world.port) as link:
            link.send(data)
            answer = link.answer(ALWAYS if method == "HEAD" else NEVER)
        if answer and answer.status not in BUSY:
            return answer
        world.busy += 1
        time.sleep(0.05)
    raise Bad(f"{row[0]} is refused {TRIES} times")


def keep_comparing(world, number, expected):
    rng = random.Random(f"{world.seed} valid {number}")
    while not world.stopping.is_set():
        row = rng.choice(ROWS)
        try:
            answer = ask_valid(world, row)
            if normal(answer) != expected[row[0]]:
                raise Bad(f"another answer than in quiet:\n  now    {normal(answer)}\n  before {expected[row[0]]}")
        except (Bad, OSError) as error:
            if not world.stopping.is_set():
                world.fail(f"{row[0]}: {type(error).__name__}: {error}", [])
            return
        except Exception:
            world.fail(traceback.format_exc(), [])
            return
        with world.lock:
            world.checked += 1


def warm_up(world):
    """Starts the threads and opens the files that the server needs from its first requests on, and after a large body."""
    for row in ROWS[:3] + ROWS[-20:]:
        ask_valid(world, row)
    data, how, name = bodies.large(list(bodies.LARGE).index("a million ignored"), None)
    ask_all(world, [Case(name, data(world.key), how)])
    time.sleep(1.5)  # a second after such a body, free memory is returned


def quiet_answers(world):
    """{name: answer} of each valid request, alone; the second time must be as the first."""
    first = {row[0]: normal(ask_valid(world, row)) for row in ROWS}
    for row in ROWS:
        again = normal(ask_valid(world, row))
        if again != first[row[0]]:
            raise Bad(f"{row[0]} has another answer the second time:\n  {first[row[0]]}\n  {again}")
    return first


def run(world, expected, seconds):
    """Runs all threads for a time, or until one has found a failure."""
    threads = [threading.Thread(target=keep_sending, args=(world, i, world.quick), daemon=True) for i in range(QUICK_THREADS)]
    threads += [threading.Thread(target=keep_sending, args=(world, 100 + i, world.slow),
                                 daemon=True) for i in range(SLOW_THREADS)]
    threads += [threading.Thread(target=keep_comparing, args=(world, i, expected), daemon=True) for i in range(VALID_THREADS)]
    for one in threads:
        one.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not world.stopping.is_set() and world.server.process.poll() is None:
        time.sleep(0.05)
    died = world.server.process.poll() is not None
    suspects = [case for cases in world.recent.values() for batch in list(cases)[-1:] for case in batch] if died else []
    world.stopping.set()
    for one in threads:
        one.join(150)
    if died:
        world.failures = [("the server ended", suspects)]
