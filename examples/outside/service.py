"""Agents of three libraries as one HTTP service: service.py openai-agents|langgraph|smolagents PORT.

AgentFly posts each task with the address and the key of its gateway; the reply is the agent's answer. Nothing here knows of training.
"""
import asyncio
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SYSTEM = "Solve the problem by calling the calculator."
WORKED = [m for line in (Path(__file__).parent.parent / "calculator" / "worked.jsonl").open() for m in json.loads(line)["messages"]]


def compute(expression: str) -> str:
    """Computes a sum, difference, product or quotient of two numbers."""
    m = re.fullmatch(r"\s*(\d{1,12})\s*([-+*/])\s*(\d{1,12})\s*", expression)
    if not m:
        return "error: write it as 12 + 34"
    a, b = int(m[1]), int(m[3])
    if m[2] == "/":
        return "error: division by zero" if b == 0 else str(a // b if a % b == 0 else a / b)
    return str({"+": a + b, "-": a - b, "*": a * b}[m[2]])


def openai_agents(task):
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool
    from openai import AsyncOpenAI

    async def run():
        async with AsyncOpenAI(base_url=task["base_url"] + "/v1", api_key=task["api_key"], max_retries=5) as client:
            tool = function_tool(compute, name_override="calculator")
            agent = Agent("calc", instructions=SYSTEM, tools=[tool], model=OpenAIChatCompletionsModel("policy", client), model_settings=ModelSettings())
            return (await Runner.run(agent, WORKED + task["task"]["prompt"], max_turns=3)).final_output

    return asyncio.run(run())


def langgraph(task):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(model="policy", base_url=task["base_url"] + "/v1", api_key=task["api_key"], max_retries=5)
    agent = create_react_agent(model, [tool("calculator")(compute)], prompt=SYSTEM)
    messages = agent.invoke({"messages": WORKED + task["task"]["prompt"]}, {"recursion_limit": 7})["messages"]
    return messages[-1].content


def smolagents(task):
    """An agent that acts by writing Python, which its library runs. The worked examples are steps in its memory."""
    from smolagents import ActionStep, CodeAgent, OpenAIServerModel, TaskStep, tool
    from smolagents.monitoring import Timing

    def calculator(expression: str) -> str:
        """Computes.

        Args:
            expression: such as 12 + 34
        """
        return compute(expression)

    model = OpenAIServerModel(model_id="policy", api_base=task["base_url"] + "/v1", api_key=task["api_key"])
    agent = CodeAgent(tools=[tool(calculator)], model=model, max_steps=1, verbosity_level=0, code_block_tags=("<code>", "</code>"))
    agent.prompt_templates["system_prompt"] = SYSTEM
    for question, call in zip(WORKED[0::4], WORKED[1::4]):
        code = 'final_answer(calculator("' + re.search(">(.*)<", call["content"])[1] + '"))'
        agent.memory.steps += [TaskStep(task=question["content"]), ActionStep(step_number=1, timing=Timing(0, 0), model_output=f"<code>{code}</code>")]
    return agent.run(task["task"]["prompt"][-1]["content"], reset=False)


LIBRARIES = {"openai-agents": openai_agents, "langgraph": langgraph, "smolagents": smolagents}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            answer = str(run(task))
        except Exception as e:  # an agent that gives up, at its own cap of turns and the like, has no answer
            print(task["id"], type(e).__name__, str(e)[:200], file=sys.stderr, flush=True)
            answer = ""
        inner = re.search(r"<answer>(.*?)</answer>", answer, re.S)
        body = json.dumps({"answer": (inner[1] if inner else answer).strip()}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    run = LIBRARIES[sys.argv[1]]
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    print("ready", flush=True)
    server.serve_forever()
