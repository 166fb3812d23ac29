# The shape of a stateful tool with an environment class, in AgentFly's Python library.
from agentfly.envs import BaseEnv
from agentfly.rewards import reward
from agentfly.tools import tool


class CounterEnv(BaseEnv):
    def __init__(self, start=0):
        self.first, self.n = start, None

    async def reset(self, env_args=None):
        self.n = self.first

    async def step(self, action):
        self.n += int(action)
        return str(self.n)


@tool(env_cls=CounterEnv, env_kwargs={"start": 10}, name="increase", description="Count on.", stateful=True, pool_size=8)
async def increase(by: str, env: CounterEnv):
    """
    Count on.

    Args:
        by (str): How far.
    """
    return await env.step(by)


@reward(name="high", env_cls=CounterEnv, env_kwargs={"start": 10}, pool_size=8)
async def high(prediction: str, env: CounterEnv, goal: int = 12) -> dict:
    return {"reward": 1.0 if env.n >= goal else 0.0, "n": env.n}
