"""A ReAct agent of LangGraph: langgraph_loop.py plain|stream|responses."""
import os
import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

mode = sys.argv[1]


@tool
def calculator(a: float, b: float) -> int:
    """Multiplies."""
    return int(a * b)


more = {"use_responses_api": True} if mode == "responses" else {}
model = ChatOpenAI(model="policy", base_url=os.environ["OPENAI_BASE_URL"], streaming=mode == "stream", **more)
r = create_react_agent(model, [calculator], prompt="You calculate.").invoke({"messages": [("user", "What is 17*23?")]})
last = r["messages"][-1].content
print("FINAL", last if isinstance(last, str) else last[-1]["text"])
