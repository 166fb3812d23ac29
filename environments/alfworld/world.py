"""ALFWorld's text games as an environment: the package's PDDL engine without its planner, which is asked for a solution alone."""

import hashlib
import json
import os
import tempfile

from agentfly_environment import Refused, WrongTask

MOST = 1 << 24  # numbers of games
LONGEST = 200  # characters of a command
LEFT_OUT = ("movable", "Sliced")  # in paths of the original games, which the package leaves out too


class World:
    def __init__(self, types, data, eval_fold, list_actions):
        os.environ.setdefault("ALFWORLD_DATA", data or tempfile.gettempdir())  # else the import makes a folder in the user's home
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from alfworld.gen import constants, goal_library
        from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
        from textworld import EnvInfos
        from textworld.envs import PddlEnv

        for name in types:
            if name not in TYPES:
                raise Refused("there is no type %s; the types are %s" % (name, ", ".join(TYPES)))
        self.types = [t for t in TYPES if t in types] or list(TYPES)
        with open(ALFRED_PDDL_PATH) as domain, open(ALFRED_TWL2_PATH) as grammar:
            self.parts = domain.read(), grammar.read(), constants, goal_library.gdict
        self.data, self.folds = data, {"train": "train", "eval": eval_fold}
        if data and not os.path.isdir(self.root("train")):
            raise Refused("data: there is no folder %s; alfworld-download fetches the original games" % self.root("train"))
        self.list_actions, self.files = list_actions, {}
        self.game = PddlEnv(EnvInfos(admissible_commands=True, won=True))
        self.env = AlfredDemangler(self.game, shuffle=False)
        self.state, self.reached, self.played = None, 0.0, False

    def root(self, split):
        return os.path.join(self.data, "json_2.1.1", self.folds[split])

    def split(self, game):
        """Where a generated game belongs, and what tells it from others: about a fifth of all goals are held out, in whatever kitchen."""
        return "train" if hashlib.sha256(game["goal"].encode()).digest()[0] % 5 else "eval", game["pddl_problem"]

    def tasks(self, split, n):
        if split not in self.folds:
            raise Refused("there is no split %s; the splits are train and eval" % split)
        if n > MOST // 10:
            raise Refused("%d tasks of split %s were asked for; there are at most %d" % (n, split, MOST // 10))
        return self.originals(split, n) if self.data else self.generated(split, n)

    def generated(self, split, n):
        out, seen, number = [], set(), 0
        while len(out) < n and number < MOST:
            where, key = self.split(make(number, self.types, *self.parts))
            if where == split and key not in seen:
                seen.add(key)
                out.append({"id": "%s-%d" % (self.types[number % len(self.types)], number), "prompt": [], "fields": {"game": number}})
            number += 1
        return out

    def originals(self, split, n):
        """The files of a split, in turn of each type: their folders are named by it."""
        if split not in self.files:
            of = {t: [] for t in self.types}
            for folder, folders, files in os.walk(self.root(split)):
                folders.sort()
                path = os.path.relpath(os.path.join(folder, "game.tw-pddl"), self.data)
                kind = next((t for t in self.types if os.path.basename(os.path.dirname(folder)).startswith(t)), None)
                if kind and "game.tw-pddl" in files and not any(word in path for word in LEFT_OUT):
                    of[kind].append(path)
            self.files[split] = [(k, path) for row in range(max(map(len, of.values()))) for k, paths in of.items() for path in paths[row : row + 1]]
        out = []
        for kind, path in self.files[split]:
            if len(out) == n:
                break
            if self.read(path).get("solvable"):
                out.append({"id": "%s-%s" % (kind, os.path.dirname(path)), "prompt": [], "fields": {"file": path}})
        return out

    def read(self, path):
        whole = os.path.realpath(os.path.join(self.data, path))
        if not whole.startswith(os.path.join(os.path.realpath(self.data), "")):
            raise WrongTask("the file %s is not in the folder of the games" % path)
        try:
            with open(whole) as f:
                game = json.load(f)
            return {k: game[k] for k in ("pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough") if k in game}
        except (OSError, ValueError) as e:
            raise WrongTask("the game %s cannot be read: %s" % (path, e))

    def reset(self, seed, game=None, file=None):
        if file is not None and (not self.data or not isinstance(file, str)):
            raise WrongTask("the task names a file of the original games; give their folder with the parameter data")
        if file is None and game is None and self.data:
            listed = self.tasks("train", 1 + seed % 1000)
            if not listed:
                raise WrongTask("there are no games of split train in %s" % self.data)
            file = listed[seed % len(listed)]["fields"]["file"]
        if file is not None:
            self.source = self.read(file)
        else:
            game = seed % MOST if game is None else game
            if type(game) is not int or not 0 <= game < MOST:
                raise WrongTask("games have the numbers 0 to %d, and the task says %.40r" % (MOST - 1, game))
            self.source = make(game, self.types, *self.parts)
        self.begin()
        text = self.state.feedback.partition("=-\n")[2] or self.state.feedback  # without the package's banner
        return text.strip() + self.listed(), {}

    def begin(self):
        self.env.load(dict(self.source))
        self.state, self.reached = self.env.reset(), 0.0

    def step(self, action):
        command = " ".join(action.split()).lower()
        if len(command) > LONGEST or command not in self.state["_valid_commands"]:
            return "Nothing happens." + self.listed(), 0.0, False, False, {"agentfly": {"failure": "policy"}}
        self.state, _, _ = self.env.step(command)
        won = bool(self.state["won"])
        reward, self.reached = float(won) - self.reached, float(won)
        return self.state.feedback.strip() + ("" if won else self.listed()), reward, won, False, {"success": won}

    def listed(self):
        return "\nActions: " + ", ".join(self.actions()) if self.list_actions else ""

    def actions(self):
        return list(self.state["admissible_commands"])

    def score(self):
        return self.reached

    def solution(self):
        out = self.source.get("walkthrough") or self.game._pddl_state.replan(self.game._entity_infos)
        self.begin()  # the planner leaves the state as it likes
        return list(out)

    def example(self):
        """A game file of the package's form, for those who write their own."""
        return {k: v for k, v in make(0, self.types, *self.parts).items() if k != "goal"}

    def close(self):
        self.env.close()
