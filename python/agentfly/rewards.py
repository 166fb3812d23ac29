"""AgentFly's place of the decorator."""

from typing import Any

from agentfly import reward

__all__ = ["reward"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError("agentfly.rewards.%s is not offered here; decorate a function with @reward, or name a prebuilt reward in the job" % name)
