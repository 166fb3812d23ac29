"""A world that begins slowly now and then, hangs now and then, and now and then ends its process."""

import os
import random
import tempfile
import time


class Chaotic:
    def __init__(self):
        self.own = random.Random(os.getpid())  # the episode's seed would do the same in every attempt
        self.folder = tempfile.mkdtemp()

    def reset(self, seed=None):
        if self.own.random() < 0.1:
            time.sleep(0.3)
        self.at = 0
        return "place 0 of 3"

    def step(self, action):
        chance = self.own.random()
        if chance < 0.01:
            time.sleep(1000)
        if chance > 0.98:
            os._exit(3)
        self.at += 1
        return "place %d of 3" % self.at, 1 / 3, self.at == 3, False, {}

    def close(self):
        os.rmdir(self.folder)


class Faulty:
    """A world with one fault, which its task names."""

    def reset(self, seed=None, fault=""):
        self.fault, self.at = fault, 0
        return "place 0 of 3"

    def step(self, action):
        self.at += 1
        if self.at == 2 and self.fault == "nan":
            return "", float("nan"), False, False, {}
        if self.at == 2 and self.fault == "huge":
            return "x" * (50 << 20), 0.0, False, False, {}
        if self.at == 2 and self.fault == "never":
            time.sleep(1000)
        if self.at == 2 and self.fault == "dies":
            os._exit(3)
        if self.at == 2 and self.fault == "nonsense":
            for fd in range(3, 30):  # one of them is the worker's own
                try:
                    os.write(fd, b"nonsense\n")
                except OSError:
                    pass
            time.sleep(1000)
        return "place %d of 3" % self.at, 1 / 3, self.at == 3, False, {}
