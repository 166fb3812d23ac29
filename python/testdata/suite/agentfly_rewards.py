# The shape of reward files for AgentFly's Python library: prediction, trajectory as a list of messages, **kwargs, numbers beside reward.
from typing import Dict, List

from agentfly.rewards import reward


@reward(name="math_equal_reward")
def math_equal_reward(final_response: str, answer: str, **kwargs) -> float:
    """Whether the answer is right.

    Args:
        final_response (str): The agent's answer
        answer (str): The correct answer
        **kwargs: Additional arguments (ignored)
    """
    return 1.0 if final_response == answer else 0.0


@reward(name="math_equal_reward_tool")
def math_equal_reward_tool(prediction: str, answer: str, trajectory: List[Dict]) -> dict:
    has_called_tool = False
    for msg in trajectory:
        if msg["role"] == "tool":
            has_called_tool = True
            break
    right = prediction == answer
    return {"reward": (1.0 if right else 0.1) if has_called_tool else 0.0, "acc": 1.0 if right else 0.0}
