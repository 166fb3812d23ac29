"""Classes of every protocol, without any package."""

import os
import random
import sys
import time
from dataclasses import dataclass


class Discrete:
    def __init__(self, n, start=0):
        self.n, self.start = n, start


class Corridor:
    """Gymnasium's five values: go right until the end."""

    def __init__(self, length=3):
        self.length, self.action_space = length, Discrete(2)

    def reset(self, seed=None, options=None):
        random.seed(seed)
        self.at = (options or {}).get("at", random.randrange(self.length - 1))
        print("reset is printed")
        os.write(1, b"so is this\n")
        return "You are at %d of %d." % (self.at, self.length), {"at": self.at}

    def step(self, action):
        self.at = max(0, self.at + (1 if action == 1 else -1))
        done = self.at >= self.length
        return "You are at %d of %d." % (self.at, self.length), float(done), done, False, {"at": self.at}

    def solution(self):
        return ["right"] * (self.length - self.at)

    def get_state(self):
        return {"at": self.at}

    def set_state(self, state):
        self.at = state["at"]

    def score(self):
        return self.at / self.length

    def distance(self, to):
        return {"distance": to - self.at}


class Old:
    """gym's four values."""

    def seed(self, seed):
        self.first = seed

    def reset(self):
        self.n = 0
        return {"first": self.first % 10}

    def step(self, action):
        self.n += 1
        return {"n": self.n, "heard": action}, 0.5, self.n == 2, {"TimeLimit.truncated": self.n == 2}


class Arena:
    """TextArena's."""

    class State:
        error_count = 0

    def reset(self, num_players, seed=None):
        assert num_players == 1
        random.seed(seed)
        self.state, self.number, self.messages = Arena.State(), random.randint(1, 9), [(-1, "Guess a number.", None)]

    def get_observation(self):
        out, self.messages = self.messages, []
        if hasattr(self.state, "role_mapping"):
            return 0, out
        return 0, out

    def step(self, action):
        self.messages.append((0, action, None))
        if not action.isdigit():
            self.state.error_count += 1
            self.messages.append((-1, "Invalid move.", None))
            return False, {}
        self.right = int(action) == self.number
        if not self.right:
            self.messages.append((-1, "higher" if int(action) < self.number else "lower", None))
        return self.right, {}

    def close(self):
        return {0: 1}, {0: {"reason": "Right!", "turn_count": 1}}


class Sky:
    """skyrl-gym's."""

    def __init__(self, env_config=None, extras={}):
        self.answer, self.turns, self.max_turns = extras["answer"], 0, 3

    def init(self, prompt):
        return prompt + [{"role": "user", "content": "You have three turns."}], {"turns": 3}

    def step(self, action):
        self.turns += 1
        right = action == self.answer
        return {"observations": [] if right else [{"role": "user", "content": "no"}], "reward": float(right), "done": right or self.turns == 3, "metadata": {"turn": self.turns}}

    def close(self):
        pass


class Counter:
    """TRL's: methods are tools."""

    def __init__(self):
        self.n, self.done, self.reward = 0, False, 0.0

    def reset(self, goal: int, **row):
        self.n, self.goal, self.done, self.reward = 0, int(goal), False, 0.0
        return "Count to %d." % self.goal

    def add(self, by: int = 1) -> str:
        """Adds to the counter.

        Args:
            by: How much.
        """
        if by < 1:
            raise ValueError("by must be above 0")
        self.n += by
        if self.n >= self.goal:
            self.done, self.reward = True, float(self.n == self.goal)
        return str(self.n)

    def look(self) -> dict:
        """Reads the counter."""
        return {"n": self.n}

    def _hidden(self):
        pass


@dataclass
class GuessAction:
    guess: int
    why: str = ""


@dataclass
class GuessObservation:
    text: str
    left: int
    done: bool = False
    reward: float = None
    metadata: dict = None


class Guess:
    """OpenEnv's."""

    def reset(self, seed=None, episode_id=None, low: int = 0):
        self.target, self.left = random.Random(seed).randint(low, 9), 3
        return GuessObservation("Guess a digit.", self.left)

    def step(self, action: GuessAction, timeout_s=None):
        self.left -= 1
        right = action.guess == self.target
        return GuessObservation("right" if right else "wrong", self.left, right or self.left == 0, 1.0 if right else None, {"truncated": self.left == 0 and not right})

    @property
    def state(self):
        return {"left": self.left}


class Later:
    """AgentFly's BaseEnv, without it."""

    async def start(self):
        self.started = True

    async def reset(self, env_args=None):
        self.word = (env_args or {}).get("word", "none")
        return "Say %s." % self.word

    async def step(self, action):
        return {"observation": "good" if action == self.word else "no", "reward": float(action == self.word), "done": action == self.word}

    async def aclose(self):
        path = os.environ.get("AGENTFLY_TEST_CLOSED")
        if path:
            open(path, "a").write("closed\n")


class Nothing:
    """No protocol at all."""

    def play(self):
        pass


class Mute:
    def __repr__(self):
        raise RuntimeError("it says nothing")


class Bad:
    """Every kind of misbehaviour, by its action."""

    def __init__(self, how="", noise=0):
        self.how = how
        if how == "constructor":
            raise RuntimeError("no")

    def reset(self, seed=None):
        if self.how == "reset":
            return 3, 4, 5
        if self.how in ("none", "none and info"):
            return None if self.how == "none" else (None, {})
        return "begin"

    def step(self, action):
        if action == "nan":
            return "", float("nan"), False, False, {}
        if action == "text reward":
            return "", "much", False, False, {}
        if action == "text of a number":
            return "", "1", False, False, {}
        if action == "inf info":
            return "", 0, False, False, {"x": float("inf"), "huge": "y" * 1000000, "object": object}
        if action == "odd info":
            loop = {}
            loop.update(a=loop, b=loop, c=loop)
            return "", 0, False, False, {"number": 10**400, "longer": 10**5000, "inside": [10**400], "loop": loop, "mute": Mute(), "at": 3}
        if action == "huge":
            return "x" * 50_000_000, 0, False, False, {}
        if action == "huge dict":
            return {"a": ["x" * 1000] * 50_000}, 0, False, False, {}
        if action == "bytes":
            return b"abc", 0, False, False, {}
        if action == "three":
            return 1, 2, 3
        if action == "raise":
            raise ValueError("it does not work")
        if action == "exit":
            sys.exit(3)
        if action == "crash":
            os._exit(7)
        if action == "hang":
            time.sleep(1000)
        if action == "memory":
            return "x" * (8 << 30), 0, False, False, {}
        if action == "fork":
            if os.fork() == 0:
                return "child", 0, False, False, {}
        if action == "close":
            os.closerange(0, 3)
            return "closed", 0, False, False, {}
        if action == "surrogate":
            return "half \ud800 done", 0, False, False, {}
        print("said " + action)
        return "heard " + action, 0, False, False, {}


class Words:
    """For the conformance suite: say the words in their order."""

    def reset(self, seed=None, size: int = 3):
        draw = random.Random(seed)
        self.words = ["".join(draw.choice("abcdefgh") for _ in range(6)) for _ in range(size)]
        self.at = 0
        return "Say " + " ".join(self.words) + "."

    def hear(self, word):
        if self.at < len(self.words) and word == self.words[self.at]:
            self.at += 1
            return "Yes.", 1 / len(self.words), self.at == len(self.words), {}
        return "Say " + self.words[self.at] + ".", 0.0, False, {"agentfly": {"failure": "policy"}}

    def step(self, action):
        text, reward, done, info = self.hear(action)
        return text, reward, done, False, dict(info, at=self.at)

    def solution(self):
        return list(self.words)

    def actions(self):
        return self.words[self.at : self.at + 1]

    def get_state(self):
        return {"words": self.words, "at": self.at}

    def set_state(self, state):
        self.words, self.at = state["words"], state["at"]

    def score(self):
        return self.at / len(self.words)


class OldWords(Words):
    def step(self, action):
        return self.hear(action)


class LaterWords(Words):
    async def step(self, action):
        text, reward, done, info = self.hear(action)
        return text, reward, done, info

    async def aclose(self):
        pass


class ArenaWords(Words):
    """TextArena's form."""

    def reset(self, num_players, seed=None):
        self.said = Words.reset(self, seed)
        self.state = Arena.State()

    def get_observation(self):
        return 0, self.said

    def step(self, action):
        self.said, reward, done, info = self.hear(action)
        self.state.error_count += bool(info)
        return done, {}

    def close(self):
        return {0: 1.0}, {0: {"reason": "done"}}

    def score(self):
        return float(self.at == len(self.words))


class Calls:
    """TRL's form: the tool say."""

    def __init__(self):
        self.reward, self.done = 0.0, False

    def reset(self, seed=None):
        self.word, self.reward, self.done = "".join(random.choice("abcdefgh") for _ in range(6)), 0.0, False
        return "Say hello to " + self.word + "."

    def say(self, word: str) -> str:
        """Says a word."""
        self.done, self.reward = True, 1.0
        return "You said " + word + "."


@dataclass
class WordAction:
    word: str


class OpenWords(Words):
    """OpenEnv's form; an action of one text is that text."""

    def reset(self, seed=None, episode_id=None):
        return GuessObservation(Words.reset(self, seed), 0)

    def step(self, action: WordAction):
        text, reward, done, info = self.hear(action.word)
        return GuessObservation(text, 0, done, reward, info)


class Named:
    """TRL's form, with tools named as powers are."""

    def reset(self, seed=None):
        self.at = 0
        return "Begin."

    def get_state(self) -> int:
        """Reads the state."""
        return self.at

    def set_state(self, value: int) -> str:
        """Sets the state."""
        self.at = value
        return "Set."

    def actions(self) -> str:
        """Lists what is possible."""
        return "all"

    def score(self, team: str) -> int:
        """Reads a team's score."""
        return 1

    def tasks(self) -> str:
        """Lists tasks."""
        return "none"

    def check(self, piece: str) -> str:
        """Checks a piece."""
        return piece


class Half(Words):
    """It gives its state, and takes none back."""

    set_state = None


class Pole:
    """Pays for each step until it falls, as CartPole does; info says nothing of success."""

    def reset(self, seed=None):
        self.n = 0
        return "up"

    def step(self, action):
        self.n += 1
        return "up", float(action), self.n == 3, False, {}

    def get_state(self):
        return self.n

    def set_state(self, state):
        self.n = state


class Bytes:
    """A space of two bytes, which has no room for other numbers, as numpy's."""

    class Tuple:
        spaces = [Discrete(256), Discrete(256)]

        def contains(self, value):
            return len(value) == 2 and all(len(v.to_bytes(1, "big")) == 1 for v in value)

    action_space = Tuple()

    def reset(self, seed=None):
        return "begin"

    def step(self, action):
        return "did %s" % (action,), 0.0, False, False, {}


@dataclass
class SmallAction:
    n: int

    def __post_init__(self):
        assert 0 <= self.n < 10, "n is 0 to 9"


class Small:
    """OpenEnv's form, with an action that checks itself."""

    def reset(self, seed=None):
        return "begin"

    def step(self, action: SmallAction):
        return GuessObservation("did %d" % action.n, 0)


class Board:
    """A game whose methods of its own have the names of powers."""

    def reset(self, seed=None):
        return "begin"

    def step(self, action):
        return "on", 1.0, True, False, {}

    def score(self, player):
        return 3

    def actions(self, player):
        return []

    def check(self, place):
        return place

    def get_state(self):
        return 1

    def set_state(self, rows, columns):
        pass


class Visits:
    """Its state is what its argument says."""

    def __init__(self, state):
        self.state = {"numbers": {3: "a"}, "object": {"at": Discrete(3)}, "nested": [[{"x": {None: 1}}]], "plain": {"at": [1, {"2": None}], "b": True}}[state]

    def reset(self, seed=None):
        return "begin"

    def step(self, action):
        return "on", 0.0, False, False, {}

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state


class Doors:
    """Three places, each with doors to the others: an entry of info says which, as a mask or by name."""

    def __init__(self, entry):
        self.entry, self.action_space, self.at = entry, Discrete(3), 0

    def info(self):
        mask = [i != self.at for i in range(3)]
        return {"mask": {"action_mask": mask}, "names": {"admissible_commands": [str(i) for i in range(3) if mask[i]]}, "none": {}}[self.entry]

    def reset(self, seed=None):
        self.at = 0
        return "place 0", self.info()

    def step(self, action):
        self.at = action
        return "place %d" % action, 0.0, False, False, self.info()

    def get_state(self):
        return self.at

    def set_state(self, state):
        self.at = state


class Slow:
    """Its tasks take a while, until the file is there."""

    def __init__(self, file):
        self.file = file

    def tasks(self, split, n):
        open(self.file + ".asked", "w").close()
        while not os.path.exists(self.file):
            time.sleep(0.01)
        return [{"id": "t%d" % i, "prompt": [], "fields": {}} for i in range(n)]

    def reset(self):
        return "begin"

    def step(self, action):
        return "on", 0.0, True, False, {}


class Unseeded:
    def reset(self):
        return "begin"

    def step(self, action):
        return "on", 0.0, False, False, {}


class Native:
    """A step that keeps the interpreter's lock for ever, with a child process beside it."""

    def reset(self, seed=None):
        import subprocess

        self.child = subprocess.Popen(["sleep", "1000"])
        return "%d %d" % (os.getpid(), self.child.pid)

    def step(self, action):
        return str(sum(range(10**13))), 0.0, False, False, {}


class Litters:
    """Leaves a folder for temporary files and a process behind."""

    def reset(self, seed=None):
        import subprocess
        import tempfile

        self.folder = tempfile.mkdtemp()
        self.child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        return self.folder

    def step(self, action):
        return "", 0.0, False, False, {}


class Around:
    """Says what a worker can see around it: the file that the action names, its processes, and whether it reaches the network."""

    def reset(self, seed=None):
        return "look"

    def step(self, action):
        import socket

        reached = ""
        try:
            socket.create_connection(("127.0.0.1", int(action.split()[1])), 1).close()
            reached = "reached"
        except OSError as e:
            reached = type(e).__name__
        processes = [p for p in os.listdir("/proc") if p.isdigit()]
        return "%s %d %s" % (os.path.exists(action.split()[0]), len(processes), reached), 0.0, False, False, {}


class Quiz:
    """Its reset names fields that belong to rewards and data."""

    def reset(self, question, answer, seed=None):
        self.answer, self.said = answer, question
        return question

    def step(self, action):
        right = action == self.answer
        return "right" if right else "wrong", float(right), True, False, {"success": right}


class LaterQuiz(Quiz):
    """AgentFly's form."""

    async def aclose(self):
        pass


class ArenaQuiz(Quiz):
    """TextArena's form."""

    def reset(self, num_players, question, answer, seed=None):
        Quiz.reset(self, question, answer)

    def get_observation(self):
        return 0, self.said

    def step(self, action):
        self.said, self.reward, done, _, info = Quiz.step(self, action)
        return done, info

    def close(self):
        return {0: self.reward}, {}


class Dice:
    """Draws from a global source of random numbers in its reset, its steps and its set_state."""

    def __init__(self, source="random"):
        self.draw = random.gauss
        if source == "numpy":
            import numpy

            self.draw = numpy.random.normal

    def reset(self, seed=None):
        self.rolls = [self.draw(0, 1)]
        return "roll"

    def step(self, action):
        self.rolls.append(self.draw(0, 1))
        return str(self.rolls), 0.0, False, False, {}

    def get_state(self):
        return self.rolls

    def set_state(self, state):
        self.rolls = list(state)
        self.draw(0, 1)


class Paid:  # TRL's protocol, with a reward of whatever type
    def __init__(self):
        self.reward = 0

    def reset(self, reward=0):
        self.reward = reward
        return "Work."

    def pay(self, text: str) -> str:
        """Sets the reward.

        Args:
            text: the reward
        """
        self.reward = text
        return "paid"


class LaterBad:  # BaseEnv's protocol, whose step gives what it is told to
    async def reset(self, how="text"):
        return None if how == "none" else "Begin."

    async def step(self, action):
        return {"three": ("x", 1.0, True), "two": ("x", 1.0), "reward": {"reward": 1.0}, "list": ["a", "b"], "none": None}[action]

    async def aclose(self):
        pass


class SilentTRL:  # TRL's protocol, whose reset gives nothing
    def reset(self):
        pass

    def walk(self) -> str:
        """Walks."""
        return "walked"


class SilentSky:  # skyrl-gym's protocol, whose init gives no messages
    def init(self, prompt):
        return None, {}

    def step(self, action):
        return {"observations": [], "reward": 0.0, "done": True, "metadata": {}}

    def close(self):
        pass
