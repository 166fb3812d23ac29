"""TextWorld's generated games as an environment. A game is generated and compiled when its task is played first, and kept in the cache folder."""

import argparse
import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import tempfile
import time

from agentfly_environment import Refused, WrongTask

FORMAT = 1  # of the cache: raised when games are made in another way
LONGEST = 200  # characters of a command; the interpreter's buffer holds few more
BLOCK = 64  # seeds that are tried for the game of one task
MOST = 1 << 24  # tasks of a split
STALE = 3600  # seconds after which a folder of a game that was never finished is removed
# Commands of the interpreter and of testers, which are not of the world: they end, rewind or reveal it.
META = frozenset(
    """quit q restart save restore undo oops again g script transcript recording replay verify version notify superbrief verbose brief normal short long
    pronouns nouns score full fullscore credits showme purloin gonear abstract scope tree trace rules scenes actions showheap test random relations
    showverb restrict requests""".split()
)


class World:
    def __init__(self, game, params, eval_fold, list_actions, cache):
        import textworld
        from textworld.challenges import CHALLENGES

        self.textworld = textworld
        names = sorted(n[len("tw-") :] for n in CHALLENGES)
        if "tw-" + game not in CHALLENGES:
            raise Refused("there is no game %s; the games are %s" % (game, ", ".join(names)))
        _, self.make, arguments = CHALLENGES["tw-" + game]
        if game == "cooking" and "split" in params:
            raise Refused("params: split follows from the split of the tasks; write eval_fold: valid, or test")
        self.settings = self.read(arguments, params)
        self.game, self.eval_fold, self.list_actions = game, eval_fold, list_actions
        key = json.dumps([FORMAT, game, self.settings], sort_keys=True)
        version = getattr(textworld, "__version__", "")
        self.folder = os.path.join(cache, "%s-%s-%s" % (version, game, hashlib.sha256(key.encode()).hexdigest()[:16]))
        os.makedirs(self.folder, exist_ok=True)
        self.sweep()
        self.env = self.state = None

    def read(self, arguments, params):
        """The options of a kind of game, as its own command line reads them."""

        class Parser(argparse.ArgumentParser):
            def error(self, message):
                raise Refused("params: %s" % " ".join(message.replace("--", "").split()))

        parser = Parser(prog="params", add_help=False, allow_abbrev=False)
        arguments(parser)
        words = []
        for key in sorted(params):
            v = params[key]
            if v is False:
                continue
            words.append("--" + key.replace("_", "-"))
            if "--" + key in parser._option_string_actions:
                words[-1] = "--" + key
            if v is not True:
                words.append(str(v))
        return vars(parser.parse_args(words))

    def sweep(self):
        """Folders of games that a process was killed over."""
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            try:
                if name.startswith("tmp-") and time.time() - os.stat(path).st_mtime > STALE:
                    shutil.rmtree(path, ignore_errors=True)
            except OSError:
                pass  # another process removed it

    def tasks(self, split, n):
        if split not in ("train", "eval"):
            raise Refused("there is no split %s; the splits are train and eval" % split)
        if n > MOST:
            raise Refused("%d tasks of split %s were asked for; there are at most %d" % (n, split, MOST))
        return [{"id": "%s-%s-%d" % (self.game, split, i), "prompt": [], "fields": {"split": split, "game": i}} for i in range(n)]

    def generate(self, seed, split):
        import numpy

        random.seed(seed)
        numpy.random.seed(seed)
        options = self.textworld.GameOptions()
        options.seeds = seed
        settings = dict(self.settings)
        if self.game == "cooking":
            settings["split"] = "train" if split == "train" else self.eval_fold
        return self.make(settings, options), options

    def fold(self, game):
        """The split of a world, which follows from what is true in it: no world is of both. The games of cooking have foods of their own in each."""
        from textworld.generator.inform7 import Inform7Game

        facts = sorted(map(str, map(Inform7Game(game).get_human_readable_fact, game.world.facts)))
        return "train" if hashlib.sha256("\n".join(facts).encode()).digest()[0] % 2 else "eval"

    def path(self, split, number):
        """The file of a task's game, made where it is not there. Who comes second waits for the first."""
        name = "%s-%s-%d" % (split, self.eval_fold, number) if self.game == "cooking" and split == "eval" else "%s-%d" % (split, number)
        folder = os.path.join(self.folder, name)
        file = os.path.join(folder, "game.z8")
        if os.path.exists(file):
            return file
        with open(os.path.join(self.folder, "lock-%d" % (number % 16)), "a") as lock:  # the end of this process opens it
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(file):
                self.build(folder, split, number)
        return file

    def build(self, folder, split, number):
        for seed in range(number * BLOCK, (number + 1) * BLOCK):
            game, options = self.generate(seed, split)
            if self.game == "cooking" or self.fold(game) == split:
                break
        else:
            raise WrongTask("none of %d games is one of split %s; the games of these params are too few" % (BLOCK, split))
        new = tempfile.mkdtemp(prefix="tmp-", dir=self.folder)
        try:
            options.path, options.force_recompile = os.path.join(new, "game.z8"), True
            self.textworld.generator.compile_game(game, options)
            for name in os.listdir(new):
                if name not in ("game.z8", "game.json"):
                    os.remove(os.path.join(new, name))
            os.rename(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def reset(self, seed, split="train", game=None):
        if split not in ("train", "eval"):
            raise WrongTask("there is no split %s; the splits are train and eval" % split)
        if game is None:
            game = seed % MOST
        if type(game) is not int or not 0 <= game < MOST:
            raise WrongTask("games have the numbers 0 to %d, and the task says %.40r" % (MOST - 1, game))
        file = self.path(split, game)
        self.leave()
        infos = self.textworld.EnvInfos(
            admissible_commands=True, won=True, lost=True, max_score=True, objective=True, description=True, moves=True, policy_commands=True, extras=["walkthrough"]
        )
        self.env = self.textworld.start(file, infos)
        self.state, self.reached = self.env.reset(), 0
        self.most = max(1, self.state["max_score"])
        return clean(self.state["objective"] + "\n\n" + self.state["description"]) + self.listed(), {"file": os.path.relpath(file, self.folder)}

    def step(self, action):
        command, wrong = " ".join(action.split()).lower(), None
        if not command or len(command) > LONGEST or not command.isascii() or not command.isprintable():
            wrong = "That is no command."
        elif re.search(r"[.;,]|\bthen\b", command):
            wrong = "One command at a time."
        elif command.split()[0] in META or "tw-" in command:
            wrong = "That is no command of this world."
        if wrong:
            return wrong + self.listed(), 0.0, False, False, {"agentfly": {"failure": "policy"}}
        before = self.state["moves"]
        self.state, score, done = self.env.step(command)
        text = clean(self.state.feedback)
        won, lost = bool(self.state["won"]), bool(self.state["lost"])
        if self.state["moves"] == before and not (done or won or lost):  # no turn was taken: the interpreter did not understand it
            return (text or "Nothing happens.") + self.listed(), 0.0, False, False, {"agentfly": {"failure": "policy"}}
        reached = self.most if won else min(max(score, 0), self.most)
        reward, self.reached = (reached - self.reached) / self.most, reached
        info = {"score": reached / self.most, "success": won, "failure": lost}
        return (text or "Nothing happens.") + ("" if done else self.listed()), reward, bool(done or won or lost), False, info

    def listed(self):
        return "\nActions: " + ", ".join(self.actions()) if self.list_actions else ""

    def actions(self):
        return sorted(c for c in self.state["admissible_commands"] if len(c) <= LONGEST)

    def score(self):
        return self.reached / self.most

    def solution(self):
        return list(self.state["extra.walkthrough"] or self.state["policy_commands"])

    def leave(self):
        if self.env is not None:
            self.env.close()
            self.env = None

    def close(self):
        self.leave()


def clean(text):
    """Feedback without the prompt, the interpreter's line of moves and its question behind the end, and with single blank lines."""
    lines = [line.strip() for line in (text or "").partition("*** The End ***")[0].split("\n")]
    lines = [line for line in lines if line != ">" and not re.match(r"^>.*-= .* =-\s*\d+/\d+$", line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
