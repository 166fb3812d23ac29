"""reasoning-gym's datasets as an environment of one action: the question is observed, the answer is the action, and the package's own scorer
says what it is worth."""

import difflib
import signal
import threading

from agentfly_environment import Refused, WrongTask

LONGEST = 20000  # characters of an answer
EVAL = 1 << 30  # added to the seed of held-out tasks: the package's item i has the seed seed+i
LATE = 5  # seconds for the score of one answer


class Late(BaseException):
    """Not an Exception: the package's scorers catch those."""


def late(*_):
    raise Late


class World:
    def __init__(self, datasets, config, size, seed):
        from reasoning_gym.factory import DATASETS, create_dataset

        for name in datasets:
            if name not in DATASETS:
                near = difflib.get_close_matches(name, DATASETS, 1)
                raise Refused("there is no dataset %s%s; the %d datasets are %s" % (name, "; did you mean %s?" % near[0] if near else "", len(DATASETS), ", ".join(sorted(DATASETS))))
        self.names, self.size, self.seed, self.create = datasets, size, seed, create_dataset
        self.config, self.made, self.trained, self.entry = config, {}, {}, None
        for name in datasets:
            try:
                self.of(name, "train")
            except (TypeError, AssertionError, ValueError) as e:
                raise Refused("config: %s: %s" % (name, str(e) or "a value is out of its range"))

    def of(self, name, split):
        """A dataset of a split. Its items are made when they are asked for."""
        key = name, split
        if key not in self.made:
            self.made[key] = self.create(name, **dict(self.config.get(name) or {}, size=self.size, seed=self.seed + (EVAL if split == "eval" else 0)))
        return self.made[key]

    def content(self, name, split, index):
        entry = self.of(name, split)[index]
        return entry["question"], str(entry.get("answer"))

    def tasks(self, split, n):
        if split not in ("train", "eval"):
            raise Refused("there is no split %s; the splits are train and eval" % split)
        if n > self.size * len(self.names):  # before anything is generated
            raise Refused("%d tasks of split %s were asked for; there are at most %d: the parameter size is %d for each dataset" % (n, split, self.size * len(self.names), self.size))
        out, left = [], [iter(range(self.size)) for _ in self.names]
        seen = [set() for _ in self.names]
        if split == "eval":  # no question of training
            seen = [set(self.of_training(name)) for name in self.names]
        ended = set()
        while len(out) < n and len(ended) < len(self.names):
            for k, name in enumerate(self.names):
                if len(out) == n:
                    break
                for index in left[k]:
                    content = self.content(name, split, index)
                    if content not in seen[k]:
                        seen[k].add(content)
                        out.append({"id": "%s-%s-%d-%d" % (name, split, self.seed, index), "prompt": [], "fields": {"dataset": name, "split": split, "index": index}})
                        break
                else:
                    ended.add(k)
        return out

    def of_training(self, name):
        if name not in self.trained:
            self.trained[name] = {self.content(name, "train", index) for index in range(self.size)}
        return self.trained[name]

    def reset(self, seed, dataset=None, index=None, split="train"):
        dataset = dataset or self.names[seed % len(self.names)]
        if dataset not in self.names:
            raise WrongTask("the dataset %s is none of the job's; they are %s" % (dataset, ", ".join(self.names)))
        if split not in ("train", "eval"):
            raise WrongTask("there is no split %s; the splits are train and eval" % split)
        if index is None:
            index = seed // len(self.names) % self.size
        if type(index) is not int or not 0 <= index < self.size:
            raise WrongTask("%s has the items 0 to %d, and the task says %.40r" % (dataset, self.size - 1, index))
        self.where = dataset, split
        self.entry, self.reached = self.of(dataset, split)[index], 0.0
        return self.entry["question"].strip(), {}

    def step(self, action):
        answer = self.answer(action)
        if not answer or len(answer) > LONGEST or "\0" in answer or "\ufffd" in answer:
            return "This is no answer. Write the answer to the question.", 0.0, False, False, {"agentfly": {"failure": "policy"}}
        self.reached, wrong = self.scored(answer)
        info = {"score": self.reached, "success": self.reached >= 1, "answer": answer[:200]}
        if wrong:
            info["scorer"] = wrong
        return "The answer is %s." % ("right" if self.reached >= 1 else "wrong"), self.reached, True, False, info

    def answer(self, action):
        """What stands in the last <answer>…</answer>, as the package's extract_answer reads it, else the whole text."""
        from reasoning_gym.utils import extract_answer

        tagged = extract_answer(action[-2 * LONGEST :]) if "<answer>" in action else None
        return (action if tagged is None else tagged).strip()

    def scored(self, answer):
        """The score, and what went wrong with it: a scorer that raises or goes on for long has been given a strange answer, which is the agent's doing."""
        dataset = self.of(*self.where)
        timed = threading.current_thread() is threading.main_thread()
        try:
            if timed:
                signal.signal(signal.SIGALRM, late)
                signal.setitimer(signal.ITIMER_REAL, LATE)
            try:
                score = float(dataset.score_answer(answer, self.entry))
            finally:
                if timed:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        except Late:
            return 0.0, "it did not end within %d seconds" % LATE
        except Exception as e:  # of any scorer; MemoryError and RecursionError too
            return 0.0, ("%s: %s" % (type(e).__name__, e))[:200]
        if not 0 <= score <= 1:  # NaN too
            return 0.0, "the score was %s" % score
        return score, None

    def score(self):
        return self.reached

    def solution(self):
        answer = self.entry.get("answer")
        if answer is None:
            raise Refused("the dataset %s names no answer" % self.where[0])
        return ["<answer>%s</answer>" % answer]
