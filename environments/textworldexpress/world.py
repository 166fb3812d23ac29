"""TextWorldExpress's games as an environment: one Java process, spoken to without what the package's own step adds."""

import json
import shutil

from agentfly_environment import Refused, WrongTask

FOLDS = {"train": 0, "dev": 10000, "test": 20000}  # where the seeds of a fold begin
SEEDS = 1000  # of a fold
LONGEST = 1000  # characters of an action
BACK = {"move north": "move south", "move south": "move north", "move east": "move west", "move west": "move east"}


def straight(gold):
    """A gold path without ways there and back: the package's paths wander as they like, another way each time that they are asked for."""
    out = []
    for action in gold:
        if action == "look around" or action.startswith("open door"):
            continue
        if out and BACK.get(action) == out[-1]:
            out.pop()
        else:
            out.append(action)
    return tuple(out)


class World:
    def __init__(self, game, params="", eval_fold="dev", list_actions=False, max_steps=50):
        if shutil.which("java") is None:
            raise Refused("java is missing; install it: apt-get install default-jre-headless")
        from textworld_express import TextWorldExpressEnv

        self.env = TextWorldExpressEnv()
        games = list(self.env.server.getGameNames())
        if game not in games:
            raise Refused("there is no game %s; the games are %s" % (game, ", ".join(games)))
        wrong = self.env.server.load(game, params)
        if wrong:
            raise Refused("params: %s" % " ".join(wrong.split()))
        self.game, self.eval_fold, self.list_actions = game, eval_fold, list_actions
        self.server, self.now, self.where = self.env.server, None, None
        self.max_steps, self.trained = max_steps, None

    def tasks(self, split, n):
        folds = {"train": "train", "eval": self.eval_fold}
        if split not in folds:
            raise Refused("there is no split %s; the splits are train and eval" % split)
        fold, out = folds[split], []
        if n > SEEDS:  # before anything is generated
            raise Refused("%d tasks of split %s were asked for; there are at most %d" % (n, split, SEEDS))
        if split == "eval" and self.trained is None:
            self.trained = {self.key(s, "train") for s in range(FOLDS["train"], FOLDS["train"] + SEEDS)}
        seen = set(self.trained) if split == "eval" else set()
        for s in range(FOLDS[fold], FOLDS[fold] + SEEDS):
            if len(out) == n:
                break
            key = self.key(s, fold)
            if key in seen or len(key[-1]) > self.max_steps:
                continue
            seen.add(key)
            out.append({"id": "%s-%s-%d" % (self.game, fold, s), "prompt": [], "fields": {"seed": s, "fold": fold}})
        return out

    def key(self, seed, fold):
        """What tells a task from others: games of few places repeat, and two that begin the same and are won by the same actions are one task."""
        now = json.loads(self.server.generateNewGameJSON(seed, fold, True))
        return self.server.getTaskDescription(), now["observation"], straight(self.server.getGoldActionSequence())

    def place(self, seed, fold):
        """The fold and its seed: the package takes a seed of another fold, or of none, in silence."""
        of = next((f for f, first in FOLDS.items() if first <= seed < first + SEEDS), None)
        if fold is not None and fold not in FOLDS:
            raise WrongTask("there is no fold %s; the folds are train, dev and test" % fold)
        if fold is not None and of not in (None, fold):
            raise WrongTask("the seed %d is one of fold %s, and the task says %s" % (seed, of, fold))
        fold = fold or of or "train"
        return fold, seed if of else FOLDS[fold] + seed % SEEDS

    def new(self, gold):
        fold, seed = self.where
        self.now = json.loads(self.server.generateNewGameJSON(seed, fold, gold))
        self.reached = 0.0

    def reset(self, seed, fold=None):
        self.where = self.place(seed, fold)
        self.new(False)
        return self.server.getTaskDescription().strip() + "\n" + self.shown(), {"fold": self.where[0]}

    def shown(self):
        text = self.now["observation"].strip()
        if self.list_actions:
            text += "\nActions: " + ", ".join(self.actions())
        return text

    def step(self, action):
        action, wrong = " ".join(action.split()), None
        if len(action) > LONGEST:
            wrong = "Unknown action: it is too long."
        else:
            now = json.loads(self.server.stepJSON(action))
            if now["observation"].startswith("Unknown action"):
                wrong = now["observation"].strip()
            self.now = now
        if wrong:
            if self.list_actions:
                wrong += "\nActions: " + ", ".join(self.actions())
            return wrong, 0.0, False, False, {"agentfly": {"failure": "policy"}}
        score = float(self.now["score"])
        reward, self.reached = score - self.reached, score
        success, failure = bool(self.now["tasksuccess"]), bool(self.now["taskfailure"])
        info = {"score": score, "success": success, "failure": failure}
        return self.shown(), reward, success or failure or score >= 1, False, info

    def actions(self):
        return sorted(self.now["validActions"])

    def score(self):
        return float(self.now["score"])

    def solution(self):
        for _ in range(20):  # until one does not wander for longer than an episode may take
            self.new(True)
            gold = list(self.server.getGoldActionSequence())
            if len(gold) <= self.max_steps:
                break
        return gold

    def check(self):
        if self.env._gateway.java_process.poll() is not None:
            raise RuntimeError("its Java process ended")

    def close(self):
        self.env.close()
