"""TextWorldExpress's games as an environment: one Java process, spoken to without what the package's own step adds."""

import json
import shutil

from agentfly_environment import Refused, WrongTask

FOLDS = {"train": 0, "dev": 10000, "test": 20000}  # where the seeds of a fold begin
SEEDS = 1000  # of a fold
LONGEST = 1000  # characters of an action
BACK = {"north": "south", "south": "north", "east": "west", "west": "east"}


def chores(gold):
    """What a gold path does beside walking, in no order: the package's paths wander as they like, another way each time that they are asked for."""
    return tuple(sorted(a for a in gold if a != "look around" and not a.startswith(("move ", "open door ", "close door "))))


class World:
    def __init__(self, game, params="", eval_fold="dev", list_actions=False, max_steps=50, keep_score=False):
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
        self.max_steps, self.trained, self.ways = max_steps, None, {}
        self.keep_score, self.reached = keep_score, 0.0

    def tasks(self, split, n):
        folds = {"train": "train", "eval": self.eval_fold}
        if split not in folds:
            raise Refused("there is no split %s; the splits are train and eval" % split)
        fold, out = folds[split], []
        if n > SEEDS:  # before anything is generated
            raise Refused("%d tasks of split %s were asked for; there are at most %d" % (n, split, SEEDS))
        if split == "eval" and self.trained is None:
            self.trained = {}  # seeds by how they begin
            for s in range(FOLDS["train"], FOLDS["train"] + SEEDS):
                self.trained.setdefault(self.beginning(s, "train"), []).append(s)
        seen = set()
        for s in range(FOLDS[fold], FOLDS[fold] + SEEDS):
            if len(out) == n:
                break
            begins = self.beginning(s, fold)
            if len(self.way(s, fold)[1]) > self.max_steps:
                continue
            key = begins, self.way(s, fold)[0]
            if key in seen or split == "eval" and any(self.way(t, "train")[0] == key[1] for t in self.trained.get(begins, ())):
                continue
            seen.add(key)
            out.append({"id": "%s-%s-%d" % (self.game, fold, s), "prompt": [], "fields": {"seed": s, "fold": fold}})
        return out

    def beginning(self, seed, fold):
        now = json.loads(self.server.generateNewGameJSON(seed, fold, False))
        return self.server.getTaskDescription(), now["observation"]

    def way(self, seed, fold):
        """What tells a task from others that begin the same, because games of few places repeat: what wins it. And the actions of one way to do so."""
        if (seed, fold) not in self.ways:
            self.where = fold, seed
            won = self.won()
            moved = tuple(won) if self.game not in ("twc", "cookingworld") else chores(won)
            self.ways[seed, fold] = moved, won
        return self.ways[seed, fold]

    def won(self):
        """Actions that win the game, none behind the one that does."""
        if self.game == "coin":
            found = self.found()
            if found is not None:
                return found
        for _ in range(20):  # until one does not wander for longer than an episode may take
            self.new(True)
            gold = list(self.server.getGoldActionSequence())
            self.new(False)
            for i, action in enumerate(gold):
                if json.loads(self.server.stepJSON(action))["tasksuccess"]:
                    gold = gold[: i + 1]
                    break
            if len(gold) <= self.max_steps:
                break
        return gold

    def found(self):
        """The shortest way to the coin, from a walk through all places: the same each time. None where places share a name."""
        self.new(False)
        ways, coins, first = {}, [], self.here()
        if first is None or not self.walk(first, ways, coins) or not coins:
            return None
        queue, seen = [(first, [])], {first}
        while queue:
            at, actions = queue.pop(0)
            if at == coins[0]:
                actions = actions + ["take coin"]
                break
            for direction, (to, door) in ways[at].items():
                if to not in seen:
                    seen.add(to)
                    queue.append((to, actions + (["open door to " + direction] if door else []) + ["move " + direction]))
        self.new(False)
        over = [json.loads(self.server.stepJSON(a))["tasksuccess"] for a in actions]
        return actions if over[-1] and not any(over[:-1]) else None

    def here(self):
        text = self.now["look"].strip()
        return text.partition(".")[0] if text.startswith("You are in ") else None

    def act(self, action):
        self.now = json.loads(self.server.stepJSON(action))

    def walk(self, at, ways, coins):
        """Walks through the places that nobody was in and comes back; False: the way back led elsewhere."""
        ways[at] = {}
        possible = self.now["validActions"]
        if "take coin" in possible:
            coins.append(at)
        for direction in ("north", "east", "south", "west"):
            if "move " + direction not in possible:
                continue
            door = "open door to " + direction in possible
            if door:
                self.act("open door to " + direction)
            self.act("move " + direction)
            to = self.here()
            if to is None or to == at:
                continue
            ways[at][direction] = to, door
            if to not in ways and not self.walk(to, ways, coins):
                return False
            self.act("move " + BACK[direction])
            if self.here() != at:
                return False
        return True

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
        if self.keep_score:
            score = max(score, self.reached)
        reward, self.reached = score - self.reached, score
        success, failure = bool(self.now["tasksuccess"]), bool(self.now["taskfailure"])
        info = {"score": score, "success": success, "failure": failure}
        return self.shown(), reward, success or failure or score >= 1, False, info

    def actions(self):
        return sorted(self.now["validActions"])

    def score(self):
        return self.reached

    def solution(self):
        won = self.won()
        self.new(False)
        return won

    def check(self):
        if self.env._gateway.java_process.poll() is not None:
            raise RuntimeError("its Java process ended")

    def close(self):
        self.env.close()
