"""AgentFly's base of the classes that env_cls names."""

from typing import Any


class BaseEnv:
    """An environment of one trajectory. start and reset come before its first call, aclose when the trajectory is over."""

    async def start(self) -> None:
        """Open what the environment needs."""

    async def reset(self, env_args: Any = None) -> Any:
        """Begin anew."""

    async def step(self, action: Any) -> Any:
        """Act, and return what is observed."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close what start opened."""
