"""AgentFly's place of the decorator."""

from typing import Any

from agentfly import tool

__all__ = ["tool"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError("agentfly.tools.%s is not offered here; decorate a function with @tool, or name a prebuilt tool in the job" % name)
