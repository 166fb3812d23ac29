"""Environments under OpenEnv's own server. usage: openenv_server.py PORT guess|mcp|slow [SESSIONS]"""
import random
import sys
import time
from typing import Optional

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import Environment
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class GuessAction(Action):
    guess: int = Field(..., ge=0, le=9)


class GuessObservation(Observation):
    text: str = ""
    tries_left: int = 0


class GuessState(State):
    target: int = 0


class Guess(Environment[GuessAction, GuessObservation, GuessState]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._s = GuessState()

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, low: int = 0):
        self._s = GuessState(episode_id=episode_id, target=random.Random(seed).randint(low, 9))
        return GuessObservation(text=f"Guess a digit from {low} to 9.", tries_left=3)

    def step(self, action: GuessAction, timeout_s: Optional[float] = None):
        self._s.step_count += 1
        if action.guess == 0:
            raise RuntimeError("zero is broken")
        d, left = action.guess - self._s.target, 3 - self._s.step_count
        return GuessObservation(
            text="right" if d == 0 else "lower" if d > 0 else "higher", tries_left=left, done=d == 0 or left == 0,
            reward=1.0 if d == 0 else 0.0, metadata={"truncated": left == 0 and d != 0},
        )

    @property
    def state(self):
        return self._s

    def close(self):
        print("closed", flush=True)

    def list_splits(self):
        return ["train", "test"]

    def num_tasks(self, split):
        return {"train": 10, "test": 2}[split]

    def list_tasks(self, split):
        return [{"id": f"{split}-{k}", "low": k % 9} for k in range(self.num_tasks(split))]

    def get_task(self, split, index):
        return self.list_tasks(split)[index]

    def get_task_range(self, split, start=None, stop=None):
        return self.list_tasks(split)[start:stop]


class Slow(Guess):
    def step(self, action, timeout_s=None):
        time.sleep(30)
        return super().step(action)


class Adder(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("adder")

        @server.tool
        def add(a: int, b: int) -> int:
            """Adds two numbers."""
            return a + b

        @server.tool
        def fail(reason: str) -> str:
            """Fails."""
            raise ValueError(reason)

        super().__init__(server)
        self._s = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._s = State(episode_id=episode_id)
        return Observation(metadata={"prompt": "add 2 and 3"})

    def _step_impl(self, action, timeout_s=None, **kwargs):
        raise ValueError("call a tool")

    async def step_async(self, action, timeout_s=None, **kwargs):
        seen = await super().step_async(action, timeout_s=timeout_s, **kwargs)
        if isinstance(action, CallToolAction) and seen.error is None and seen.result.data == 5:
            seen.reward, seen.done = 1.0, True
        return seen

    @property
    def state(self):
        return self._s

    def close(self):
        super().close()
        print("closed", flush=True)


port, kind, sessions = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 8
if kind == "mcp":
    app = create_app(Adder, CallToolAction, CallToolObservation, env_name="adder", max_concurrent_envs=sessions)
else:
    app = create_app(Slow if kind == "slow" else Guess, GuessAction, GuessObservation, env_name="guess", max_concurrent_envs=sessions, state_cls=GuessState)
uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
