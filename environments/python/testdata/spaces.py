"""Gymnasium's spaces whose actions are arrays."""

import gymnasium
import numpy
from gymnasium import spaces


class Told(gymnasium.Env):
    """It tells the action."""

    observation_space = spaces.Text(100)

    def reset(self, seed=None, options=None):
        return "begin", {}

    def step(self, action):
        return "did %r" % (action,), 0.0, False, False, {}


class Multi(Told):
    action_space = spaces.MultiDiscrete([3, 3])


class Binary(Told):
    action_space = spaces.MultiBinary(2)


class Bytes(Told):
    action_space = spaces.Box(0, 255, (2,), numpy.uint8)


class Floats(Told):
    action_space = spaces.Box(-numpy.inf, numpy.inf, (2,), numpy.float32)


class Squares(Told):
    action_space = spaces.Box(-1, 1, (2, 2), numpy.float32)


class Both(Told):
    action_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 9, (2,), numpy.int64)})
